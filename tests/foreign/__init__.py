"""Our clients and services against brokers, databases and clients of others: all marked `foreign`."""
