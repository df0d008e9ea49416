"""The example services and their demos."""
