"""Responders inside the broker's process.

The only layer that holds both ends: it imports the broker and rpc, and neither knows of it.
"""
