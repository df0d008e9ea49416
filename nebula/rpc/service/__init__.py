"""A service while it runs: requests in, handlers, replies out."""
