"""Values of jobs: states, records, identifiers, limits, JSON views. Pure."""
