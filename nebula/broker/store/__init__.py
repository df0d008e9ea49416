"""Store on disk: SQLite, its writer threads, backup and offline tools. Everything here may block."""
