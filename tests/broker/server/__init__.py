"""Listeners: TLS, WebSocket, HTTP, logins, rates, and how connections end."""
