"""Contracts of verbs: signatures, injection, declared verbs and the context of a request. Pure."""
