"""Tests of the shop. They stand next to its services, as in a real project, and use `nebula.testing`."""
