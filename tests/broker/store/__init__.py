"""Stores, their writer thread, and the tools that work on a stored broker."""
