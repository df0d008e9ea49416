"""Queues, topics and last values: order, credit, paging, expiry, snapshots."""
