"""Functions around requests and calls, tracing among them."""
