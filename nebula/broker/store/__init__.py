"""The store on disk: SQLite, its writer thread, backup and offline tools. Everything here may block."""
