"""Version of the package."""

# docs/decisions/0079: a release has the version of its tag.
__version__ = "0.2.0"
