"""The broker. A sans-I/O core, and a shell of asyncio around it.

`server`, `connection` and `settings` belong to the shell. Everything else here is synchronous
and deterministic: time, ids and chance are arguments, and nothing waits, logs or reads a clock.
"""
