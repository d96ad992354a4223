"""The input formats: a file each, listed in `registry.py`."""
