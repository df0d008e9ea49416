"""Destination kinds: queue, topic and last value. They know messages and subscriptions, never frames."""
