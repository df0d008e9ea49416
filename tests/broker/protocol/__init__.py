"""Frames of a connection: states, versions, required headers, forms of headers."""
