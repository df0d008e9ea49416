"""What operators see and do: views, administration, dead letters, metrics and log events."""
