"""Typed declarations of a service's verbs, written from what it says of itself."""
