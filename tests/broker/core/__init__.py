"""The broker between frames and stores: rights, sessions, shares, transactions, receipts, dead letters."""
