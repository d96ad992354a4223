"""Write docs/pictures/*.png, what pages look like in a browser, with Chromium: `python
docs/pictures.py`.

The corpus is the docstrings of Python's standard library, as in `make demo`. Needs the extras
`cpu`, `serve`, `report` and `evaluate`.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sentence_beam.pipelines.cli import main as sentence_beam

ROOT = Path(__file__).resolve().parents[1]
PICTURES = Path(__file__).with_name("pictures")
SIZES = {"serve": (900, 1000), "report": (1000, 1340), "evaluate": (1280, 370)}  # pixels
# labels of the task that is evaluated
MODULES = ("asyncio", "datetime", "email", "logging", "os", "unittest")
QUERY = "/?q=remove+a+directory+and+everything+in+it&k=4"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def browser() -> str | None:
    """The path of Chromium, or None if it is not installed."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def main(argv: list[str] | None = None) -> None:
    """Make a store of some nights, and write the pictures of its pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURES)
    parser.add_argument("--rows", type=int, default=2000, help="rows of the store's last night")
    args = parser.parse_args(argv)
    if browser() is None:
        sys.exit("docs/pictures.py needs Chromium, which is not installed: apt install chromium")
    args.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        make(Path(folder), args.rows, args.output)


def make(folder: Path, rows: int, output: Path) -> None:
    """Write every picture, with a folder to work in."""
    corpus = docstrings(folder)
    store = folder / "docstrings"
    for night in nights(corpus.slice(0, rows)):
        pq.write_table(night, folder / "corpus.parquet")
        options = ("--id-column", "id", "--keep-columns", "module", "--index", "auto")
        run("embed", "--input", folder / "corpus.parquet", *options, "--store", store)
    with served(store) as address:
        draw(address + QUERY, output / "serve.png")
    run("report", "--store", store, "--output", folder / "report.html")
    draw(f"file://{folder}/report.html", output / "report.png")
    task = f"classification:module={task_of(corpus, folder, rows)}"
    poolers = [word for name in ("mean", "cls", "max", "first-last") for word in ("--pooler", name)]
    run("evaluate", "--task", task, *poolers, "--report", folder / "evaluate.html")
    draw(f"file://{folder}/evaluate.html", output / "evaluate.png")


def docstrings(folder: Path) -> pa.Table:
    """The demo's corpus in an order that mixes modules."""
    program = ROOT / "deploy" / "demo" / "docstrings.py"
    subprocess.run(
        [sys.executable, str(program), str(folder / "demo")], check=True, stdout=subprocess.DEVNULL
    )
    table = pq.read_table(folder / "demo")
    step = 7919  # a prime, so that every row is taken once
    order = [place * step % len(table) for place in range(len(table))]
    return table.take(order)


def nights(rows: pa.Table) -> Iterator[pa.Table]:
    """The input of seven nights: it grows, rows are edited, emptied and deleted."""
    total = len(rows)
    yield rows.slice(0, total // 2)
    yield rows.slice(0, total * 6 // 10)
    yield rows.slice(0, total * 7 // 10)
    yield edited(rows.slice(0, total * 7 // 10), total // 10, " (edited)")
    yield edited(rows.slice(0, total * 8 // 10), total // 200, "")
    yield rows.slice(0, total * 7 // 10)
    yield rows


def edited(rows: pa.Table, count: int, ending: str) -> pa.Table:
    """The rows, the first `count` of them with another ending of their text, or without text if it
    is empty.
    """
    texts = rows["text"].to_pylist()
    first = [text + ending if ending else "" for text in texts[:count]]
    return rows.set_column(
        rows.column_names.index("text"), "text", pa.array([*first, *texts[count:]])
    )


def task_of(corpus: pa.Table, folder: Path, rows: int) -> Path:
    """A classification task: the module of a docstring."""
    labels = pc.list_element(pc.split_pattern(corpus["module"], "."), 0)
    known = pc.is_in(labels, value_set=pa.array(MODULES))
    task = pa.table({"label": labels, "text": corpus["text"]}).filter(known).slice(0, rows // 2)
    pq.write_table(task, folder / "task.parquet")
    return folder / "task.parquet"


def run(*words: object) -> None:
    """Run a command. Exits if it fails."""
    if sentence_beam([str(word) for word in words]) != 0:
        sys.exit(f"sentence-beam {words[0]} failed")


@contextmanager
def served(store: Path) -> Iterator[str]:
    """The address of a store that is served meanwhile."""
    command = [
        sys.executable,
        "-m",
        "sentence_beam",
        "serve",
        "--store",
        str(store),
        "--port",
        "0",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield address_in(process)
    finally:
        process.terminate()
        process.wait()


def address_in(process: "subprocess.Popen[str]") -> str:
    """The address that a server prints. Exits if it ends without one."""
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"http://\S+", line)
        if found:
            return found[0]
    sys.exit("sentence-beam serve ended without an address")


def draw(url: str, picture: Path) -> None:
    """Write the picture of a page; its name says how large."""
    width, height = SIZES[picture.stem]
    with tempfile.TemporaryDirectory(prefix="chromium-") as profile:
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu",
                 "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--disable-background-networking", f"--window-size={width},{height}",
                 f"--user-data-dir={profile}", f"--screenshot={picture}"]  # fmt: skip
        subprocess.run([str(browser()), *flags, url], check=True, capture_output=True, timeout=300)


if __name__ == "__main__":
    main()
