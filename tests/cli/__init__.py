"""The command `nebula`, mostly as a process, and what it shows on a terminal."""
