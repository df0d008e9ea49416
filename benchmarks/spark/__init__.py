"""What Spark's rows start: a service, and the same code without one."""
