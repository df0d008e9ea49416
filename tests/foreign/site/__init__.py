"""The documentation site, built as users build it and looked at in a browser."""
