"""STOMP clients in Python from other projects, against our broker."""
