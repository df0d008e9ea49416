"""Requests that come twice and are handled once."""
