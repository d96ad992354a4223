"""A module for each command: parse options, wire transforms, print. Nothing here runs on a
worker.
"""

from sentence_beam.hidden import check_packages

check_packages()
