"""Middleware that is there to be used, written as anybody's own is.

- `logs`: each request or call in the log, and who asked in every line between.
- `metrics`: how many, how long, and which errors, for Prometheus.
- `tracing`: spans of OpenTelemetry, from the client through the broker to handler and job.
- `limits`: no request takes longer than this.

Each module is imported by its name: they need different libraries.
"""
