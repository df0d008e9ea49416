"""`nebula.testing`: brokers, clocks, fakes and faults for tests of users."""
