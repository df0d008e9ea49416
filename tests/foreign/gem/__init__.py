"""A double of the gem NebulousStomp, byte by byte and against our services."""
