"""Store on disk: SQLite, its threads, backup and offline tools.

All modules but `writer` block. It runs the store in two threads, one for batches and one for pages, and the
broker's loop awaits them.
"""
