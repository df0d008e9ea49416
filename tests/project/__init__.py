"""The repository: layers, sizes, words, folders, what an installation brings."""
