"""The asyncio shell: listeners, connections, scheduling, TLS, WebSocket and HTTP."""
