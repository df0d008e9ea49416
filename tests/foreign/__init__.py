"""Our clients and services with other brokers, databases and clients. All are marked `foreign`."""
