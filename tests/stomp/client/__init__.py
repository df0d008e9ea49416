"""The STOMP client: links, TLS, WebSocket, and brokers that break the protocol."""
