"""Find the files of a model in a folder of the hub's cache."""

from pathlib import Path

from sentence_beam.transforms.base.errors import OptionError


def find_snapshot(folder: Path) -> Path:
    """Return the current snapshot of a folder of the cache (`models--owner--name`).

    Other folders are returned as given. Raises OptionError if refs/main, or the snapshot that it
    names, is missing.
    """
    snapshots = folder / "snapshots"
    if (folder / "config.json").is_file() or not snapshots.is_dir():
        return folder
    main = folder / "refs" / "main"
    commits = sorted(path.name for path in snapshots.iterdir() if path.is_dir())
    mend = "fetch the model again"
    if commits:
        mend += f", or give one of {snapshots}: {', '.join(commits)}"
    if not main.is_file():
        raise OptionError(f"{main} is missing, so the current snapshot is unknown; {mend}")
    commit = main.read_text(encoding="utf-8", errors="replace").strip()
    if commit not in commits:
        raise OptionError(f"{main} names the snapshot {commit!r}, which is missing; {mend}")
    return snapshots / commit
