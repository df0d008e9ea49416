"""Streams of items between a service and its caller."""
