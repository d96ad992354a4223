"""What a Flex Template's launcher runs: `sentence-beam embed` with the template's parameters."""

import sys

from pipelines.embed import main

if __name__ == "__main__":
    sys.exit(main())
