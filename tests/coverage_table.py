"""Print the lines and branches that the tests of the last `make coverage` reached, by folder."""

import io
import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

from coverage import Coverage

LEAST = 85  # per cent of branches, below which a file is named


def main() -> None:
    """Print a row for each folder, then the files with fewer branches than LEAST."""
    data = Coverage()
    data.load()
    with TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        data.json_report(outfile=str(report))
        files = json.load(io.StringIO(report.read_text()))["files"]
    folders: dict[str, list[dict[str, int]]] = defaultdict(list)
    for name, file in files.items():
        folders[str(Path(name).parent)].append(file["summary"])
    for folder, summaries in sorted(folders.items()):
        print(
            f"{folder:40} lines {share(summaries, 'lines'):>4}  branches {share(summaries, 'branches'):>4}"
        )
    print(f"below {LEAST} % of branches:")
    for name, file in sorted(files.items()):
        of = file["summary"]
        if of["num_branches"] and 100 * of["covered_branches"] < LEAST * of["num_branches"]:
            print(f"{name}: {of['covered_branches']} of {of['num_branches']}")


def share(summaries: list[dict[str, int]], what: str) -> str:
    """Return the share of lines or branches that were reached, in per cent, or a dash if there are
    none.
    """
    of, reached = {
        "lines": ("num_statements", "covered_lines"),
        "branches": ("num_branches", "covered_branches"),
    }[what]
    total = sum(summary[of] for summary in summaries)
    if not total:
        return "-"
    return f"{100 * sum(summary[reached] for summary in summaries) / total:.0f}"


if __name__ == "__main__":
    main()
