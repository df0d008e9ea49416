"""Tools that read OpenAPI, on the documents that the broker serves."""
