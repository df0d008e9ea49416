"""Scheduler of jobs: which job runs next, and what follows from each event. Pure: no I/O, clock or log."""
