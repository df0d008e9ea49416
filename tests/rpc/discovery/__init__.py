"""How instances make themselves known and are found."""
