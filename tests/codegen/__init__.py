"""Generated code and documents: stubs and AsyncAPI."""
