"""Everything the jobs are made of, in layers: docs/architecture.md lists them."""

if __name__ != "sentence_beam.transforms":  # found in a checkout that is on Python's path
    raise ImportError(f"this package is sentence_beam.{__name__}", name=__name__)
