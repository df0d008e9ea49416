"""What type checkers make of calls."""
