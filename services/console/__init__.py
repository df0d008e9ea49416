"""The console over the venue and the flights, with something happening: `make demo-console`."""
