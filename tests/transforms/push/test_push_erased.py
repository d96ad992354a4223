"""Rows that were erased from a store leave the databases at the next push, which says so."""

import json

from helpers.commands import Run
from helpers.pushes import Kept, check, expected, files_of, held_by
from helpers.snapshots import run_name
from helpers.watching import BY_ID


def test_erased_rows_leave_the_table(run: Run, quick, to: str) -> None:  # type: ignore[no-untyped-def]
    store = Kept(quick / "people", options=BY_ID, run_name=run_name)
    texts = {f"i{n}": f"text {n}" for n in range(9)}
    store.commit_without_index(files_of(texts))
    push = ("push", "--store", store.root, "--to", to)
    run(*push).ok()
    held = store.manifest.run
    gone = f"all rows compared: vacuum removed the snapshot {held}"
    run("forget", "--store", store.root, "--id", "i3", "i7").ok()
    said = json.loads(run(*push, "--dry-run", "--json").ok().out)
    assert (said["deleted"], said["held"]) == (2, held)
    assert gone in run(*push).ok().out
    left = {name: text for name, text in texts.items() if name not in ("i3", "i7")}
    check(held_by(to), expected(files_of(left)))
    said = json.loads(run(*push, "--json").ok().out)
    assert (said["deleted"], said["held"]) == (0, store.manifest.run)
