"""Fuzz targets, their corpus, and what they have found."""
