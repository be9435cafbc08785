"""The one place that holds the version; packaging, the wire and package.json read it."""

__version__ = "0.1.0"
