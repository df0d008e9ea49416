"""How instances register and are found."""
