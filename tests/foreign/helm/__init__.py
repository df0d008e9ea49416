"""Helm's engine and the schemas of Kubernetes, in an environment of their own."""
