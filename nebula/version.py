"""Version of the package."""

# docs/decisions/0079: the tag of a release has to fit it.
__version__ = "0.2.0"
