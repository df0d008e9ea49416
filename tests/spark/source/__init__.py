"""The streaming format `nebula`, as source and as sink."""
