"""The package's version, read by the build and written into every file and record."""

__version__ = "0.1.0"
