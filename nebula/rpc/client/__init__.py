"""The client: calls, jobs, streams and messages; its connection, retries and cache."""
