"""What a function declares about itself: signatures, types, options, injection, results."""
