"""STOMP clients of others, written in Python, against our broker."""
