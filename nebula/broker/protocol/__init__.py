"""The server's side of STOMP: frames to core calls and deliveries to bytes. Pure.

`states` says what is legal, `server_protocol` runs a connection, `handlers` do what frames ask for,
`requests` read their headers, `encoding` writes.
"""
