"""Nebula: microservice verbs and Spark jobs over STOMP."""

__version__ = "0.1.0"
