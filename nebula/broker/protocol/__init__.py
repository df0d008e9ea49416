"""The server side of STOMP: frames to core calls and deliveries to bytes. Pure."""
