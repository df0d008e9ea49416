"""The recorder: messages into Avro files."""
