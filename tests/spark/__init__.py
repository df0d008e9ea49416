"""Spark jobs: the engine that runs them, supervised; real engines are marked `spark`."""
