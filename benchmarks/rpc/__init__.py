"""RPC end to end: one verb, `quote`, asked through each framework by a program of its own.

Every contestant has the same layout: a caller's process, the broker's, and a service's.
"""
