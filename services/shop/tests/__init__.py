"""Tests of the shop, as its owner would keep them: beside the services, with what `nebula.testing` has."""
