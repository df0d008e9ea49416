"""Streams: replies in many parts, for a handler that yields and a caller that iterates (G.stream, G.credit).

`outflow` and `inflow` are the two ends of a stream without I/O. `serving`, `sending` and `threads` carry the
one, `asking` and `reading` the other.
"""
