"""Jobs of one service instance: accepted, recorded, run, reported."""
