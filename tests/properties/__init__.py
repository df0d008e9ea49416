"""Property machines: random histories of a broker against a model."""
