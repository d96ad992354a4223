"""A flipped byte in any file of a store: it is found, mended or read by nobody; never are there wrong rows."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.calibrations import fit_on
from helpers.commands import Outcome, Run
from helpers.corpora import sentences, write_parquet

from pipelines.cli import main
from transforms.errors import SentenceBeamError
from transforms.search import Searcher
from transforms.store import open_store

pytest.importorskip("faiss")
pytestmark = [pytest.mark.usefixtures("one_model"), pytest.mark.timeout(7200)]
UNREAD = ("sidecars", "runs", "report.json", "report.html", "lease.json")  # by those who read a snapshot
EVERY = 6  # flips for each run of embed over one


@dataclass(frozen=True)
class Made:
    """A whole store, the inputs beside it, and what it holds."""

    folder: Path
    embed: tuple[object, ...]
    content: Any
    named: frozenset[Path]  # within the store, by its snapshot or by the layout


def named_files(store: Path) -> frozenset[Path]:
    """The files of a store that its snapshot consists of, within the store."""
    manifest = open_store(str(store)).manifest
    said = str(manifest.content) + manifest.run
    digests = {manifest.space.calibration}
    files = (path.relative_to(store) for path in store.rglob("*") if path.is_file())
    kept = (path for path in files if str(path) == "manifest.json" or path.stem in said or path.parent.name in digests)
    return frozenset(path for path in kept if path.parts[0] not in UNREAD)


def content(store: Path) -> Any:
    """The rows with their vectors, and the hits of three queries."""
    snapshot = open_store(str(store))
    rows = snapshot.dataset().to_table().to_pylist()
    data = Counter((row["id"], row["row_hash"], row["text"], row["norm"], tuple(row["embedding"])) for row in rows)
    queries = np.random.default_rng(1).standard_normal((3, snapshot.manifest.space.dim)).astype(np.float32)
    searcher = Searcher(snapshot.manifest)
    hits = searcher.rows.described(searcher.nearest(queries, 9))
    return data, [[row["id"] for row in found] for found in hits]


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A store of two nights with every kind of file: codes, a calibration, an index of lists, rejected rows, parts."""
    folder = tmp_path_factory.mktemp("made")
    options: list[object] = ["--id-column", "id", "--keep-columns", "text", "--unit-tokens", 300, "--dtype", "float32"]
    options += ["--max-rejects", 1, "--input", folder / "in" / "*", "--model", model]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transforms.store.manifest.UNITS_IN_ONE_FILE", 1)
        for night in range(2):
            for name in "ab":
                texts = [*sentences(60, 100 * night if name == "a" else 500), ""]
                write_parquet(
                    folder / "in" / f"{name}.parquet", texts, row_group_size=20, id=[f"{name}{n}" for n in range(61)]
                )
            if night:
                fitted = fit_on(folder / "store", "standardize", folder / "fitted")
                options += ["--precision", "int8", "--index", "IVF2,SQ8", "--calibration", fitted]
            assert main([str(option) for option in ("embed", "--store", folder / "store", *options)]) == 0
    return Made(folder, tuple(options), content(folder / "store"), named_files(folder / "store"))


def kinds(made: Made) -> dict[str, list[Path]]:
    """The files of the store by kind, within it; those of which its snapshot consists before the others."""
    store, found = made.folder / "store", dict[str, list[Path]]()
    for path in sorted(path.relative_to(store) for path in store.rglob("*") if path.is_file() and path.stat().st_size):
        kind = path.parts[0] if path.parts[0] != "index" else f"index {path.suffix}"
        found.setdefault("parts" if path.parts[:2] == ("manifests", "parts") else kind, []).append(path)
    return {kind: sorted(paths, key=lambda path: path not in made.named) for kind, paths in found.items()}


def right(store: Path, wanted: Any) -> bool | None:
    """Whether a store holds what it should; None where it cannot be read, which we say with one line."""
    try:
        return content(store) == wanted
    except SentenceBeamError as error:
        said = str(error)
    except (OSError, pa.ArrowException):  # of the pyarrow dataset, which says it in its own words
        return None
    assert len(said.splitlines()) == 1
    return None


def one_line(outcome: Outcome) -> None:
    assert outcome.status in (0, 1, 2, 3, 4)
    assert "Traceback" not in outcome.err
    if outcome.status:
        assert outcome.err.splitlines()[-1].startswith("sentence-beam "), outcome.err


def flipped(run: Run, made: Made, store: Path, kind: str, rng: random.Random, with_embed: bool) -> str:
    """A case: a byte of some file of a kind is another; what came of it."""
    paths = kinds(made)[kind]
    chosen = paths[0] if rng.random() < 0.5 else rng.choice(paths)
    path = store / chosen
    whole = path.read_bytes()
    data, edge = bytearray(whole), min(len(whole), 64)
    at = rng.choice([rng.randrange(len(data)), rng.randrange(edge), len(data) - 1 - rng.randrange(edge)])
    bits = rng.choice([1, 32, 255])
    data[at] ^= bits
    path.write_bytes(data)
    what = f"{chosen}, byte {at} of {len(data)}, bits {bits}"
    verified = run("verify", "--store", store)
    one_line(verified)
    found = right(store, made.content)
    assert found is not False, f"{what}: other rows or hits; verify: {verified}"
    assert verified.status or found, f"{what}: verify finds nothing, and it cannot be read"
    if with_embed:
        ended = run("embed", "--store", store, *made.embed, "--check-carried", 1)
        one_line(ended)
        if ended.status == 0:
            after = run("verify", "--store", store)
            assert right(store, made.content), f"{what}: embed leaves other rows"
            assert set(after.err.splitlines()[:-1]) <= set(verified.err.splitlines()), (
                f"{what}: embed leaves {after.err}"
            )
        shutil.rmtree(store)
        shutil.copytree(made.folder / "store", store)
        if ended.status:
            return "embed ends with one line"
        return "embed mends it" if after.status == 0 else "embed leaves it, verify finds it"
    path.write_bytes(whole)
    if verified.status:
        return "verify finds it"
    return "it means the same" if chosen in made.named else "no snapshot's reader reads it"


def try_flips(run: Run, made: Made, store: Path, each: int, seed: int) -> dict[str, Counter[str]]:
    """So many flips for each kind of file, and how they ended."""
    shutil.copytree(made.folder / "store", store)
    rng = random.Random(seed)
    return {
        kind: Counter(flipped(run, made, store, kind, rng, number % EVERY == EVERY - 1) for number in range(each))
        for kind in sorted(kinds(made))
    }


def lines(tried: dict[str, Counter[str]]) -> str:
    total = sum((counts for counts in tried.values()), Counter[str]())
    of_kinds = "\n".join(
        f"    {kind}: {counts.total()} cases: {dict(sorted(counts.items()))}" for kind, counts in tried.items()
    )
    return f"flipped bytes: {total.total()} cases: {dict(sorted(total.items()))}\n{of_kinds}"


def test_a_few_flipped_bytes(run: Run, made: Made, store: Path, tell: Callable[[str], None]) -> None:
    tell(lines(try_flips(run, made, store, 2, seed=1)))


@pytest.mark.slow
def test_flipped_bytes(run: Run, made: Made, store: Path, tell: Callable[[str], None], size: float) -> None:
    tell(lines(try_flips(run, made, store, max(1, int(60 * size)), random.SystemRandom().randrange(10**6))))
