"""A new store made like another one, and an input that a run takes from its store.

Covers transforms/steps/options/erased_rows.py.
Covers transforms/steps/options/likeness.py.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.calibrations import standard_moments
from helpers.settled import finish
from helpers.snapshots import begin
from helpers.tiny_models import HIDDEN, save_tiny_model

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.steps.commit.restore import make_restoring_run
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.steps.options.from_snapshot import make_run_like
from sentence_beam.transforms.steps.options.resolve import Resolved, hold_lease, resolve_run
from sentence_beam.transforms.store.calibrations import keep_calibration
from sentence_beam.transforms.store.entries import RememberedOptions
from sentence_beam.transforms.store.forgetting.hashes import (
    ForgottenRow,
    ForgottenRows,
    hash_id,
    make_entry,
    read_rows,
    write_rows,
)
from sentence_beam.transforms.store.manifest import Manifest, read_manifest
from sentence_beam.transforms.store.runs.run_result import COMMITTED

OWN = RememberedOptions(
    text_column="body",
    id_column="id",
    keep_columns=("lang",),
    keep_types={"lang": "str"},
    csv="quote=none",
    keep_text=False,
    chunks="budget",
    max_rejects=0.001,
    limit=7,
    pooler="cls",
    prompt="row: ",
    query_prompt="query: ",
    max_tokens=5,
    normalize=False,
    truncate_dim=8,
    precision="int8",
    metric="l2",
)


class Stores:
    """An old store without rows and a place for a new one, whose models are tiny."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.old = str(folder / "old")
        self.new = str(folder / "new")
        self.models = [str(save_tiny_model("bert", folder / name)) for name in ("one", "two")]
        self.nights = 0

    def make_old(self, options: RememberedOptions = OWN, **of_run: Any) -> Manifest:
        """The next snapshot of the old store."""
        return self._committed(
            self.old, {"options": replace(options, model=self.models[0]), **of_run}
        )

    def begin_new(self, **given: Any) -> Manifest:
        """The first snapshot of a store like the old one."""
        run = self.resolve(like=self.old, **given).job.run
        return self._committed(
            self.new, {name: getattr(run, name) for name in ("options", "like", "globs", "space")}
        )

    def resolve(self, root: str | None = None, **given: Any) -> Resolved:
        """A run of the new store, or of the one at `root`."""
        options = EmbedOptions(store=root or self.new, dtype="float32", **given)
        return resolve_run(options, read_manifest(options.store), "run", local=True)

    def _committed(self, root: str, of_run: dict[str, Any]) -> Manifest:
        self.nights += 1
        values = {"globs": ("/in/*.csv",), "unit_tokens": 4096, **of_run}
        run = replace(begin(root, self.nights, 0), **values)
        assert finish(run, []).message == COMMITTED
        manifest = read_manifest(root)
        assert manifest is not None
        return manifest


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def test_a_new_store_takes_every_option_that_is_not_given(stores: Stores) -> None:
    stores.make_old()
    resolved = stores.resolve(like=stores.old, id_column="key")
    run = resolved.job.run
    assert run.options == replace(
        OWN, model=stores.models[0], id_column="key", limit=None, dtype="float32"
    )
    assert (run.globs, run.unit_tokens) == (("/in/*.csv",), 4096)
    likeness = resolved.likeness
    assert likeness is not None
    assert (likeness.store, likeness.begins) == (stores.old, True)
    assert {"--input", "--csv", "--keep-columns", "--pooler", "--dim", "--unit-tokens"} <= {
        *likeness.taken
    }
    assert "--json-rows" not in likeness.taken  # a default
    assert likeness.different["--id-column"] == ("key", "id")
    assert "--limit" not in {*likeness.taken, *likeness.different}


def test_a_given_model_brings_its_own(stores: Stores) -> None:
    stores.make_old()
    run = stores.resolve(like=stores.old, model=stores.models[1]).job.run
    own = ("pooler", "max_tokens", "normalize", "truncate_dim", "precision")
    defaults = RememberedOptions()
    assert [getattr(run.options, name) for name in own] == [getattr(defaults, name) for name in own]
    assert (run.options.model, run.options.prompt, run.options.metric) == (
        stores.models[1],
        "",
        "cosine",
    )
    assert (run.options.chunks, run.options.csv) == ("budget", "quote=none")
    given = stores.resolve(like=stores.old, model=stores.models[1], pooler="cls", max_tokens=4)
    assert (given.job.run.options.pooler, given.job.run.options.max_tokens) == ("cls", 4)


def calibrated(stores: Stores) -> Calibration:
    """The calibration of the old store's vectors, which it has now."""
    space = stores.resolve(input="/in/*.csv", model=stores.models[0]).space
    tensors = {"mean": np.zeros(HIDDEN), "scale": np.ones(HIDDEN)}
    info = {"space": space.to_json(), "moments": standard_moments(HIDDEN)}
    method = parse_calibration("standardize")
    fit = Calibration.make(method, tensors, (HIDDEN, HIDDEN), info, {})
    keep_calibration(stores.old, fit)
    stores.make_old(RememberedOptions(), space=replace(space, calibration=fit.digest))
    return fit


def test_a_calibration_is_taken_if_the_pooled_vectors_are_the_same(stores: Stores) -> None:
    fit = calibrated(stores)
    resolved = stores.resolve(like=stores.old)
    assert resolved.space.calibration == fit.digest
    assert Path(str(resolved.calibration_folder)).parts[-1] == fit.digest[:64]
    resolved.keep_calibration()
    assert list(Path(stores.new, "calibrations").iterdir())
    for given in ({"pooler": "cls"}, {"max_tokens": 4}, {"calibration": ""}):
        other = stores.resolve(like=stores.old, **given)
        assert (other.space.calibration, other.calibration_folder) == (None, None)
        assert other.likeness is not None
        assert "--calibration" in other.likeness.different
    same = stores.resolve(like=stores.old, truncate_dim=4)  # of pooled vectors as there
    assert same.space.calibration == fit.digest


def test_rows_that_the_old_store_erased_do_not_come_back(stores: Stores) -> None:
    rows = ForgottenRows.none()
    key = rows.key_bytes
    rows = rows.add_rows(ForgottenRow(hash_id(key, name), True) for name in ("a", "b"))
    write_rows(stores.old, rows)
    stores.make_old(RememberedOptions(), forgotten=make_entry(rows, "20260101T000001_000Z-000001"))
    resolved = hold_lease(stores.resolve(like=stores.old))
    assert read_rows(stores.new, resolved.job.run.forgotten) == rows
    assert resolved.likeness is not None
    assert "erased rows" in resolved.likeness.taken
    allowed = hold_lease(stores.resolve(like=stores.old, allow_forgotten=("a",)))
    left = read_rows(stores.new, allowed.job.run.forgotten)
    assert (left.key, left.ids) == (rows.key, {hash_id(key, "b")})
    with pytest.raises(OptionError, match="'c' is none of the erased rows"):
        stores.resolve(like=stores.old, allow_forgotten=("c",))


def test_later_nights_change_nothing_and_say_what_is_different(stores: Stores) -> None:
    stores.make_old()
    begun = stores.begin_new()
    later = stores.resolve(like=stores.old)
    assert later.likeness is not None
    assert (later.likeness.begins, later.likeness.different) == (False, {})
    stores.make_old(replace(OWN, keep_columns=("lang", "day"), max_rejects=0.01), globs=("/b/*",))
    later = stores.resolve(like=stores.old)
    assert later.likeness is not None
    assert later.likeness.different == {
        "--input": (["/b/*"], ["/in/*.csv"]),
        "--keep-columns": (["lang:str", "day"], ["lang:str"]),
        "--max-rejects": (0.01, 0.001),
    }
    run = later.job.run
    assert (run.options, run.globs) == (begun.options, begun.input.globs)
    assert json.dumps(later.likeness.to_json())


def test_the_likeness_outlasts_other_commands(stores: Stores) -> None:
    stores.make_old()
    begun = stores.begin_new()
    assert begun.like is not None
    assert stores.resolve().job.run.like == begun.like
    assert make_run_like(begun, "run", "index").like == begun.like
    earlier = replace(begun, like=None)
    assert make_restoring_run(earlier, begun, "run").like == begun.like
    (Path(stores.old) / "manifest.json").unlink()
    gone = stores.resolve(like=stores.old).likeness
    assert gone is not None
    assert not gone.exists


def test_a_store_with_options_of_its_own_refuses_to_be_like_another(stores: Stores) -> None:
    stores.make_old()
    stores.begin_new()
    with pytest.raises(OptionError, match="was not made like it"):
        stores.resolve(stores.old, like=stores.new)
    with pytest.raises(OptionError, match="was not made like it"):
        stores.resolve(stores.old, like=stores.old)
    with pytest.raises(OptionError, match="holds no store"):
        stores.resolve(str(stores.folder / "third"), like=str(stores.folder / "none"))


def test_a_run_without_an_input_takes_that_of_the_last_one(stores: Stores) -> None:
    stores.make_old()
    stores.begin_new(input=("/in/a.csv", "/in/b.csv"))
    taken = stores.resolve()
    assert taken.takes_input
    assert taken.job.run.globs == ("/in/a.csv", "/in/b.csv")
    assert not stores.resolve(input="/in/c.csv").takes_input
    assert not stores.resolve(str(stores.folder / "third"), like=stores.old).takes_input


@pytest.mark.parametrize("glob", ["rows://rows.parquet", "/tmp/x/stdin.txt", "rows://collection"])
def test_an_input_that_cannot_be_read_again_is_not_taken(stores: Stores, glob: str) -> None:
    stores.make_old(globs=("/in/a.csv", glob))
    for given in ({"root": stores.old}, {"like": stores.old}):
        with pytest.raises(OptionError, match="cannot be read again"):
            stores.resolve(**given)


def test_an_input_is_missing(stores: Stores) -> None:
    with pytest.raises(OptionError, match="name one by input"):
        stores.resolve()
    stores.make_old()
    with pytest.raises(OptionError, match="append=True adds files by name"):
        stores.resolve(stores.old, append=True)
