"""Integrations that need a dependency of their own: Redis and PostgreSQL."""
