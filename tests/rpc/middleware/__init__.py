"""Functions around requests and calls, including tracing."""
