"""The compiled build held against the interpreted one. Collected only where the compiled one runs."""
