"""Tables that jobs return, read in pages and as Arrow."""
