"""Tests, in folders that mirror the packages. What lies here is about the repository and its pages."""
