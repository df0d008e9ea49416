"""The table of jobs in a database, and the files that belong to it."""
