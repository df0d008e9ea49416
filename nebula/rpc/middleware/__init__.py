"""Middleware around requests and calls, and providers of handlers.

- `chain`: the interfaces of middleware, and the chain that it is put into.
- `providers`: what `Depends` parameters of a handler are given.
- `logs`: each request or call in the log, and its sender in every line between.
- `metrics`: how many, how long, and which errors, for Prometheus.
- `tracing`: spans and metrics of OpenTelemetry, from the client through the broker to handler and job.
- `job_spans`: the same for jobs, one span for each attempt.
- `operations`: a span and what its end adds to the metrics; `tracing` and `job_spans` begin and end them.
- `conventions`: names and instruments of OpenTelemetry's semantic conventions.
- `limits`: a time limit of requests.
- `outcomes`: the error code and duration that logs and metrics share.

Each module is imported by its name: they need different libraries.
"""
