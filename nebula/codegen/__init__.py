"""Documents and code generated from a service's contract: Python stubs, TypeScript and AsyncAPI."""
