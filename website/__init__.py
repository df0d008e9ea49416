"""The documentation site: what MkDocs cannot do by itself, and the pictures of the terminal."""
