"""`ctx.read`: readers of Avro files in jobs."""
