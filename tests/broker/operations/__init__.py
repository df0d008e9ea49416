"""What operators see and do: administration, metrics, replay of dead letters."""
