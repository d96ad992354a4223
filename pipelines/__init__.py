"""A module for each command: parse options, wire transforms, print. Nothing here runs on a
worker.
"""

if __name__ != "sentence_beam.pipelines":  # found in a checkout that is on Python's path
    raise ImportError(f"this package is sentence_beam.{__name__}", name=__name__)
