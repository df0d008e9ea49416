"""The broker: a core without I/O, and a shell of asyncio around it.

`core` and `protocol` are synchronous and deterministic: time, identifiers and random numbers are arguments,
and nothing waits, logs or reads a clock. `store` blocks, in threads of its own. `server` is the shell: it
owns sockets, the loop and the clock. `operations` shows the core to operators and changes it for them.
`assembly` builds a server from `settings`.
"""
