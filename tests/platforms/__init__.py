"""Clients on systems that these tests do not run on: an imitation of macOS and of Windows."""
