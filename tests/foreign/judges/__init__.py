"""STOMP clients in other languages that judge our broker."""
