"""A served store that is followed from snapshot to snapshot."""

import gc
import weakref
from pathlib import Path

from helpers.commands import Run
from helpers.corpora import sentences, write_lines

from sentence_beam.transforms.serve.followed import Followed


def test_the_earlier_snapshot_is_let_go(run: Run, model: Path, tmp_path: Path) -> None:
    def embed(rows: int) -> None:
        write_lines(tmp_path / "a.txt", sentences(rows))
        store = tmp_path / "store"
        run("embed", "--input", tmp_path / "a.txt", "--store", store, "--model", model).ok()

    embed(3)
    served = Followed(str(tmp_path / "store"))
    before = weakref.ref(served.manifest)
    assert len(served.manifest.shards)
    embed(4)
    served.look()
    gc.collect()
    assert served.problem == ""
    assert served.manifest.rows.stored == 4
    assert before() is None
