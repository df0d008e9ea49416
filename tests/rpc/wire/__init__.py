"""Bodies, headers and errors of requests and replies, as bytes."""
