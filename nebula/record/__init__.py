"""Messages into Avro container files, without loss and without doubles."""
