"""Services and HTTP inside the process of a broker."""
