"""Entry point of the Flex Template's launcher: `sentence-beam embed` with its parameters."""

import sys

from sentence_beam.pipelines.embed import main

if __name__ == "__main__":
    sys.exit(main())
