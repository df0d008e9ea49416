"""Benchmarks of Nebula and of the alternatives that a user might pick: `python -m benchmarks --help`."""
