"""Fetch Beam's job server for a version of Flink, as the FlinkRunner does: `job_server.py 1.19
lib/beam.jar`.
"""

import shutil
import sys
from pathlib import Path

from apache_beam.utils.subprocess_server import JavaJarServer


def main(version: str, target: Path) -> None:
    """Put the jar of the installed Beam's version at `target`."""
    jar = JavaJarServer.local_jar(
        JavaJarServer.path_to_beam_jar(f":runners:flink:{version}:job-server:shadowJar")
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(jar, target)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
