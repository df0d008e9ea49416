"""Which job runs when, and what follows from each event of a run."""
