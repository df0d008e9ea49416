"""Responders inside the broker's process.

Like `nebula.cli` and `nebula.testing`, it imports both the broker and RPC; neither of them imports it.
"""
