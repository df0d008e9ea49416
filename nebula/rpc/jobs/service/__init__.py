"""Job service of one instance: accepts jobs, records them, has them run, publishes their statuses."""
