"""The documentation: its pages agree with the code, and their examples run."""
