"""PICME SDK: pluralistic image completion at the edge."""

__version__ = "0.1.0"
