"""Brokers that are killed, and what their stores hold afterwards."""
