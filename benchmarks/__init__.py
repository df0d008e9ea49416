"""Nebula beside the brokers and frameworks that a user would pick instead: `python -m benchmarks --help`."""
