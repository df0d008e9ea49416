"""MaXaM at work: a venue's gaming machines on last-value destinations, with Avro bodies and TLS identities.

`make demo-venue` runs it; docs/how-to/venue.md walks through it.
"""
