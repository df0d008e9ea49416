"""Registry of jobs: the tables in a database, and the files that belong to them."""
