"""Jobs: their states, order, registry and the service around them."""
