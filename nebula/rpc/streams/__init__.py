"""Streams: replies in many parts, for a handler that yields and a caller that iterates (G.stream, G.credit).

`credit` has the two ends of a stream as plain state, without I/O. Around it, `serving`, `sending` and
`threads` are the handler's side, and `reading` is the caller's.
"""
