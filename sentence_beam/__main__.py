"""`python -m sentence_beam COMMAND`, which the console command `sentence-beam` runs too."""

import sys

from sentence_beam.pipelines.cli import run

if __name__ == "__main__":
    sys.exit(run())
