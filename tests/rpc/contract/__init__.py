"""What a function says of itself: signatures, types, options, injection, results."""
