"""The wire: STOMP 1.0, 1.1 and 1.2.

The modules of this folder are sans-I/O: bytes go in, frames come out, and time is an argument. They need the
standard library only. `nebula.stomp.client` is a client that does I/O with them.
"""
