"""Clients: calls, retries, reconnects, caches, values, the client without `await`."""
