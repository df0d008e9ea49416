"""Jobs as values: records, states, options and status messages."""
