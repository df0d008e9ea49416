"""The documentation site: what MkDocs cannot do by itself, and the pictures of terminal and console."""
