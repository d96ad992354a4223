"""One module for each job a person runs: parse options, wire transforms, report. Nothing here runs
on a worker.
"""

from sentence_beam.hidden import check_packages

check_packages()
