"""Entry point of the Flex Template's launcher: `sentence-beam embed` with its parameters."""

import sys

from sentence_beam.__main__ import run

if __name__ == "__main__":
    sys.argv.insert(1, "embed")
    sys.exit(run())
