"""Run mutmut on the modules that `[tool.mutmut]` in pyproject.toml names, and print a table.

mutmut makes small changes to a copy of each module, `mutants`, and runs the tests that reach the
changed function. A change that fails no test has survived. Of modules with more than WHOLE lines a
fifth of the mutants is tried, the same ones each time; arguments name others, with wildcards.
"""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path("mutants")
WHOLE = 100  # lines of a module that is tried as a whole
SAMPLE = "[27]"  # last digits of the numbers of the mutants that are tried of others
# exit codes in mutmut's files: a test failed, none did, none reaches the change
KILLED, SURVIVED, UNTESTED = 1, 0, 33


def main(names: list[str]) -> int:
    """Try the mutants of these names, or the sample; return mutmut's exit status."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    found = subprocess.run([sys.executable, "-m", "mutmut", "run", *(names or sample())])
    if found.returncode:
        return found.returncode
    survivors: list[str] = []
    print(f"{'module':58} {'mutants':>7} {'tried':>6} {'killed':>6} {'survived':>8} {'broken':>6}")
    for path in modules():
        codes = json.loads((FOLDER / f"{path}.meta").read_text())["exit_code_by_key"]
        tried = {name: code for name, code in codes.items() if code is not None}
        alive = [name for name, code in tried.items() if code in (SURVIVED, UNTESTED)]
        killed = list(tried.values()).count(KILLED)
        broken = len(tried) - len(alive) - killed  # ran out of time, or ended its process
        print(f"{path!s:58} {len(codes):7} {len(tried):6} {killed:6} {len(alive):8} {broken:6}")
        survivors += alive
    print("survivors; `mutmut show NAME` prints one:", *survivors, sep="\n")
    return 0


def modules() -> Iterator[Path]:
    """Paths of the modules to change."""
    patterns = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["mutmut"]["only_mutate"]
    for pattern in patterns:
        yield from sorted(Path().glob(pattern))


def sample() -> Iterator[str]:
    """Names, with wildcards, of the mutants that are tried if none are named."""
    for path in modules():
        name = ".".join(path.with_suffix("").parts)
        if len(path.read_text().splitlines()) > WHOLE:
            yield f"{name}.*{SAMPLE}"
        else:
            yield f"{name}.*"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
