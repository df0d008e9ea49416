"""Schemas, envelopes and data in Avro."""
