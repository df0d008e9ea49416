"""The same jobs on this machine, on a Spark cluster and through a Connect server: `make demo-cluster`."""
