"""One module for each job a person runs: parse options, wire transforms, report. Nothing here runs on a worker."""
