"""The wire: STOMP 1.0, 1.1 and 1.2.

Everything here but `client` and `link` is sans-I/O and needs the standard library only:
bytes go in, frames come out, and time is an argument.
"""
