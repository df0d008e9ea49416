"""The console's files, and how they are served."""
