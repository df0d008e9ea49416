"""Paged results of jobs: reading at the service, reassembly at the caller."""
