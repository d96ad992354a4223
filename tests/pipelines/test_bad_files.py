"""Input files that cannot be read: left out and named where a run may do that, and read as soon as
they can be.
"""

import errno
import gzip
import html
import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from helpers.commands import Run
from helpers.corpora import sentences, write_parquet
from helpers.jobs import embed_job
from helpers.snapshots import units_of

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.corpus import InputFile
from sentence_beam.transforms.steps.plan.checked import check_plan
from sentence_beam.transforms.steps.plan.planned import make_planned_rows, make_row
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.runs.carried_check import STATES

OPTIONS = ("--id-column", "id", "--unit-tokens", 60)


@pytest.fixture
def glob(inputs: Path) -> Path:
    """Three files of ten rows."""
    for number, name in enumerate("abc"):
        write(inputs / f"{name}.parquet", number)
    return inputs / "*.parquet"


def write(path: Path, number: int) -> None:
    """Ten rows of their own."""
    write_parquet(
        path, sentences(10, 10 * number), row_group_size=5, id=[f"{number}-{n}" for n in range(10)]
    )


def ids(store: Path) -> set[str]:
    """The files' numbers that the store's ids begin with."""
    return {
        row_id.partition("-")[0]
        for row_id in open_store(str(store)).dataset().to_table()["id"].to_pylist()
    }


def test_a_bad_file_keeps_its_rows_and_is_read_once_it_is_mended(
    embed: Run, run: Run, glob: Path, inputs: Path, store: Path
) -> None:
    embed(glob, *OPTIONS).ok()
    (inputs / "b.parquet").write_bytes(b"PAR1 cut short")
    (inputs / "new.parquet").write_bytes(b"PAR1")
    write(inputs / "c.parquet", 3)
    embed(glob, *OPTIONS).failed(1, "is not a readable Parquet file")
    embed(glob, *OPTIONS, "--max-bad-files", 1).failed(
        1, "2 of 4 files cannot be read, more than --max-bad-files 1 allows: "
    )
    outcome = embed(glob, *OPTIONS, "--max-bad-files", 2).ok()
    assert ids(store) == {"0", "1", "3"}
    assert "2 taken" in outcome.out
    assert f"bad file    {inputs / 'b.parquet'} is not a readable" in outcome.out
    manifest = open_store(str(store)).manifest
    result = json.loads((store / "runs" / manifest.run / "result.json").read_text())
    assert sorted(result["input"]["bad"]) == ["b.parquet", "new.parquet"]
    for report in ("report.json", "report.html"):
        text = html.unescape((store / report).read_text())
        assert f"2 files were left out: {inputs / 'b.parquet'} is not a readable" in text
    run("verify", "--store", store).ok()

    embed(glob, *OPTIONS, "--max-bad-files", "0.5").ok()  # still bad, still there
    assert ids(store) == {"0", "1", "3"}
    embed(glob, *OPTIONS).failed(1, "is not a readable Parquet file")
    embed(glob, *OPTIONS, "--max-bad-files", 2, "--no-keep-text").failed(
        1, "b.parquet", "--max-bad-files cannot keep its rows, because keep_text would change"
    )
    write(inputs / "b.parquet", 5)
    write(inputs / "new.parquet", 6)
    outcome = embed(glob, *OPTIONS).ok()
    assert ids(store) == {"0", "3", "5", "6"}
    assert "bad file" not in outcome.out


@pytest.mark.parametrize(("before", "after"), [("content", "file"), ("file", "content")])
def test_a_bad_file_does_not_lose_its_rows_to_another_partition(
    embed: Run, glob: Path, inputs: Path, store: Path, before: str, after: str
) -> None:
    embed(glob, *OPTIONS, "--partition", before).ok()
    (inputs / "b.parquet").write_bytes(b"PAR1 cut short")
    other = (*OPTIONS, "--partition", after, "--reembed", "--max-bad-files", 1)
    embed(glob, *other).failed(1, "b.parquet", "--max-bad-files cannot")
    assert ids(store) == {"0", "1", "2"}
    write(inputs / "b.parquet", 5)
    embed(glob, *other).ok()
    assert ids(store) == {"0", "2", "5"}


def test_one_that_was_left_out_can_be_appended_once_it_is_mended(
    embed: Run, glob: Path, inputs: Path, store: Path
) -> None:
    (inputs / "c.parquet").write_bytes(b"PAR1")
    embed(glob, *OPTIONS, "--max-bad-files", 1).ok()
    write(inputs / "c.parquet", 2)
    embed(inputs / "c.parquet", *OPTIONS, "--append").ok()
    assert ids(store) == {"0", "1", "2"}


def test_a_link_to_nothing_is_one_bad_file(
    embed: Run, glob: Path, inputs: Path, store: Path, tmp_path: Path
) -> None:
    (inputs / "b.parquet").rename(tmp_path / "b")
    (inputs / "b.parquet").symlink_to(tmp_path / "b")
    embed(glob, *OPTIONS).ok()
    (tmp_path / "b").rename(tmp_path / "moved")
    (inputs / "new.parquet").symlink_to(tmp_path / "nothing")
    embed(glob, *OPTIONS).failed(1, "b.parquet is a link to a file that is not there")
    for named in (glob, inputs):
        outcome = embed(named, *OPTIONS, "--max-bad-files", 2).ok()
        assert (
            outcome.out.count("is a link to a file that is not there; mend the link or remove it")
            == 2
        )
        assert ids(store) == {"0", "1", "2"}
    (inputs / "z").symlink_to(tmp_path / "nothing")
    # it may have been a folder
    embed(inputs, *OPTIONS, "--max-bad-files", 3).failed(1, "in/z is a link")


def test_a_file_on_a_damaged_part_of_the_disk_is_bad(
    embed: Run, glob: Path, inputs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(entry: storage.Entry) -> str:
        if entry.path.endswith("b.parquet"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return checksum_of(entry)

    checksum_of = storage.checksum_of
    monkeypatch.setattr(storage, "checksum_of", failing)
    outcome = embed(glob, *OPTIONS, "--max-bad-files", 1).ok()
    assert f"bad file    {inputs / 'b.parquet'} cannot be read (Input/output error)" in outcome.out
    assert ids(store) == {"0", "2"}


@pytest.mark.slow
def test_a_link_that_was_to_a_folder_is_no_bad_file(
    embed: Run, glob: Path, inputs: Path, store: Path
) -> None:
    write(inputs.parent / "parts" / "0.parquet", 7)
    (inputs / "d.parquet").symlink_to(inputs.parent / "parts")
    embed(inputs, *OPTIONS).ok()
    assert ids(store) == {"0", "1", "2", "7"}
    (inputs.parent / "parts").rename(inputs.parent / "gone")
    embed(inputs, *OPTIONS, "--max-bad-files", 3).failed(1, "d.parquet is a link")


@pytest.mark.parametrize(
    ("limit", "bad", "files", "passes"),
    [
        (0, 0, 5, True), (0, 1, 5, False), (1, 1, 1, True), (1, 2, 5, False), (7, 5, 5, True),
        (0.5, 1, 1, False), (0.5, 1, 2, True), (0.29, 29, 100, True), (0.29, 30, 100, False), (0.999, 5, 5, False),
    ],
)  # fmt: skip
def test_a_limit_is_a_number_or_below_one_a_part_of_all(
    tmp_path: Path, model: Path, limit: float, bad: int, files: int, passes: bool
) -> None:
    found = make_planned_rows(
        [
            make_row(InputFile(f"/in/{n:03}", f"{n:03}", "text", "", 0, "", ""))
            | {"carried": False, "spans": [], "bad": f"{n} is bad" if n < bad else None}
            for n in range(files)
        ]
    )
    said = f"^{bad} of {files} files cannot be read, .*: 0 is"
    outcome = nullcontext() if passes else pytest.raises(SentenceBeamError, match=said)
    job = embed_job(tmp_path, model, "in/*", max_bad_files=limit)
    with outcome:
        check_plan(found, STATES.empty_table(), job)


def test_a_file_that_breaks_off_in_the_middle_is_found_before_anything_is_embedded(
    embed: Run, run: Run, inputs: Path, store: Path
) -> None:
    lines = {
        name: "".join(f"{text}\n" for text in sentences(200, n * 200))
        for n, name in enumerate("ab")
    }
    for name, text in lines.items():
        (inputs / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    glob, cut = inputs / "*.txt.gz", inputs / "b.txt.gz"
    embed(glob, "--unit-tokens", 60).ok()
    whole = cut.read_bytes()
    before = units_of(store)
    cut.write_bytes(whole[: len(whole) // 2])
    (inputs / "c.txt.gz").write_bytes(gzip.compress(lines["a"].encode(), mtime=0)[:-9])
    embed(glob, "--unit-tokens", 60).failed(1, "b.txt.gz")
    outcome = embed(glob, "--unit-tokens", 60, "--max-bad-files", 2).ok()
    assert f"bad file    {cut}" in outcome.out
    assert [unit["path"] for unit in units_of(store)] == [unit["path"] for unit in before]
    assert len(open_store(str(store))) == 400
    planned = run("plan", "--input", glob, "--store", store, "--max-bad-files", 2).ok().out
    assert f"bad file    {cut}" in planned
    assert ", 1 unchanged" in planned
    run("verify", "--store", store).ok()


@pytest.mark.slow
def test_pages_of_parquet_are_read_too(embed: Run, glob: Path, inputs: Path, store: Path) -> None:
    embed(glob, *OPTIONS).ok()
    write(inputs / "b.parquet", 7)
    data = bytearray((inputs / "b.parquet").read_bytes())
    data[4:40] = bytes(36)  # the first page; the footer is as it was
    (inputs / "b.parquet").write_bytes(data)
    embed(glob, *OPTIONS).failed(1, "b.parquet")
    embed(glob, *OPTIONS, "--max-bad-files", 1).ok()
    assert ids(store) == {"0", "1", "2"}


def test_small_files_that_share_units_with_a_bad_one_stay_as_they_were(
    embed: Run, run: Run, inputs: Path, store: Path
) -> None:
    glob = inputs / "*.parquet"
    for number in range(20):
        write(inputs / f"{number:02d}.parquet", number)
    embed(glob, "--id-column", "id").ok()
    (inputs / "07.parquet").write_bytes(b"PAR1 cut short")
    write(inputs / "08.parquet", 80)
    write(inputs / "90.parquet", 90)
    (inputs / "09.parquet").unlink()
    embed(glob, "--id-column", "id").failed(1, "07.parquet is not a readable")
    outcome = embed(glob, "--id-column", "id", "--max-bad-files", 1).ok()
    assert ids(store) == {str(number) for number in range(20)}
    for said in (
        "07.parquet is not a readable Parquet file",
        f"08.parquet has changed and stays as it was: it shares units with {inputs}/07.parquet, which cannot be read",
        "09.parquet is gone and stays in the store: it shares units with",
        "90.parquet is new and left out: it shares units with",
    ):
        assert said in outcome.out
    run("verify", "--store", store).ok()
    embed(glob, "--id-column", "id", "--max-bad-files", 1).ok()
    assert ids(store) == {str(number) for number in range(20)}

    write(inputs / "07.parquet", 70)
    outcome = embed(glob, "--id-column", "id").ok()
    assert ids(store) == {str(n) for n in (*range(20), 70, 80, 90)} - {"7", "8", "9"}
    assert "bad file" not in outcome.out


@pytest.mark.slow
def test_a_new_small_file_that_is_bad_is_left_out_of_its_group(
    embed: Run, inputs: Path, store: Path
) -> None:
    glob = inputs / "*.parquet"
    for number in range(20):
        write(inputs / f"{number:02d}.parquet", number)
    (inputs / "07.parquet").write_bytes(b"PAR1 cut short")
    embed(glob, "--id-column", "id", "--max-bad-files", 1).ok()
    write(inputs / "08.parquet", 80)
    embed(glob, "--id-column", "id", "--max-bad-files", 1).ok()
    assert ids(store) == {str(number) for number in (*range(20), 80)} - {"7", "8"}


def test_by_content_a_bad_file_that_is_new_is_left_out_and_one_with_rows_is_not(
    embed: Run, glob: Path, inputs: Path, store: Path
) -> None:
    options = (*OPTIONS, "--partition", "content", "--max-bad-files", 1, "--keep-columns", "text")
    (inputs / "new.parquet").write_bytes(b"PAR1")
    assert "new.parquet is not a readable" in embed(glob, *options).ok().out
    assert ids(store) == {"0", "1", "2"}
    assert "30 carried" in embed(glob, *options).ok().out
    write(inputs / "new.parquet", 4)
    embed(glob, *options).ok()
    assert ids(store) == {"0", "1", "2", "4"}
    (inputs / "new.parquet").write_bytes(b"PAR1")
    for others in ((), ("--id-column", ""), ("--unit-tokens", 30), ("--reembed",)):
        embed(glob, *options, *others).failed(
            1,
            "--max-bad-files cannot leave it out, since with --partition content the rows that it had are mixed",
        )
    assert ids(store) == {"0", "1", "2", "4"}
