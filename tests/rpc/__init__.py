"""Services and their callers, over a real broker."""
