"""What a user does with a store after the first night, by the installed command."""

import contextlib
import json
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.families import save_family
from helpers.installation import SCRIPT, command, environment, has_package

FAMILIES = ("roberta", pytest.param("qwen3", marks=pytest.mark.slow))
PAIRS = [("5.0", "a b c", "a b d"), ("3.0", "a b x y", "a b"), ("0.5", "m n", "o p")]


def write_rows(folder: Path, last: str) -> None:
    """Write two files of rows; the text of the last row is given."""
    folder.mkdir(exist_ok=True)
    for name, texts in (("a", ["a b c", "d e f"]), ("b", ["g h i", last])):
        rows = [{"id": f"{name}{i}", "text": text} for i, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, rows and a store of them."""
    folder = tmp_path_factory.mktemp(request.param)
    save_family(request.param, folder / "model")
    write_rows(folder / "rows", "x y z")
    options = ("--model", "model", "--pooler", "mean", "--dtype", "float32", "--id-column", "id")
    embed = ("embed", "--input", "rows/*.jsonl", "--store", "store", *options)
    assert "4 embedded, 0 reused" in command(folder, *embed).ok().out
    return folder


@pytest.mark.slow
def test_a_second_night_an_index_and_a_calibration(folder: Path) -> None:
    write_rows(folder / "rows", "q r s")
    night = command(folder, "embed", "--input", "rows/*.jsonl", "--store", "store").ok()
    assert "1 embedded, 1 reused, 0 duplicates, 2 carried" in night.out
    assert "Flat" in command(folder, "index", "--store", "store", "--index", "auto").ok().out
    fit = ("fit", "--store", "store", "--method", "standardize", "--output", "calibration")
    assert "4 rows" in command(folder, *fit).ok().out
    calibrate = ("recalibrate", "--store", "store", "--calibration", "calibration")
    assert "4 with other vectors" in command(folder, *calibrate).ok().out
    query = ("search", "--store", "store", "--query", "q r s", "-k", "1", "--json")
    [hit] = json.loads(command(folder, *query).ok().out)["results"][0]["rows"]
    assert (hit["id"], hit["text"]) == ("b1", "q r s")


def test_a_model_is_evaluated(folder: Path) -> None:
    rows = ["score\tsentence1\tsentence2", *map("\t".join, PAIRS)]
    (folder / "pairs.tsv").write_text("\n".join(rows) + "\n")
    evaluate = ("evaluate", "--task", "sts:tiny=pairs.tsv", "--model", "model")
    command(folder, *evaluate, "--dtype", "float32", "--output", "scores.jsonl").ok()
    scores = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    [score] = [score for score in scores if score["subset"] == "all"]
    assert (score["task"], score["kind"], score["n"]) == ("tiny", "sts", len(PAIRS))
    assert abs(score["spearman"]) <= 100


@pytest.mark.skipif(not has_package("uvicorn"), reason="the extra serve is not installed")
def test_a_question_is_answered(folder: Path) -> None:
    with serving(folder, "store") as address:
        with urllib.request.urlopen(f"{address}/search?q=a+b+c&k=1", timeout=60) as response:
            [hit] = json.load(response)["hits"]
        assert hit["id"] == "a0"


@contextlib.contextmanager
def serving(folder: Path, store: str) -> Iterator[str]:
    """Run `serve` until the block ends; yields its address once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = (str(SCRIPT), "serve", "--store", store, "--port", str(port))
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env=environment(folder / "home"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_port(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def wait_for_port(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Wait until something listens on the port. Raises AssertionError if the process ends."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError("nothing listens")
