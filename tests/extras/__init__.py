"""What needs a dependency of its own: Redis."""
