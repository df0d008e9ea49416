"""Example services, each a package of its own."""
