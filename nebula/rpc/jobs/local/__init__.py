"""Jobs that run in the process of the service."""
