"""README.md and docs/ against the code: examples run, tables name what there is, links lead
somewhere.
"""

import dataclasses
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.few_words import mind_unknown_words
from helpers.pages import BESIDE, DEPLOY, DOCS, ROOT, Block, Page, names, tables
from test_layering import LAYERS

import sentence_beam
from sentence_beam.pipelines.cli import COMMANDS, main
from sentence_beam.pipelines.common import beam_flags, embed_options
from sentence_beam.pipelines.common.beam_parser import make_beam_parser
from sentence_beam.pipelines.common.options import every_command
from sentence_beam.transforms.base import errors
from sentence_beam.transforms.base.measures import STAGES
from sentence_beam.transforms.base.option import declared_in, flag_of
from sentence_beam.transforms.calibration.calibration_spec import CALIBRATIONS
from sentence_beam.transforms.corpus.pieces import PIECES
from sentence_beam.transforms.space import Recipe
from sentence_beam.transforms.space.pooler_spec import COUNT, LAYER, POOLERS
from sentence_beam.transforms.space.spec_options import Option
from sentence_beam.transforms.steps.options import EmbedOptions
from sentence_beam.transforms.store import open_store
from sentence_beam.transforms.store.layout import CLASSES
from sentence_beam.transforms.store.manifest import snapshots
from sentence_beam.transforms.store.runs.changed_rows import CHANGED_ROWS
from sentence_beam.transforms.store.runs.lease_file import Lease
from sentence_beam.transforms.store.shards.shard_columns import OWN_COLUMNS
from sentence_beam.transforms.store.tables.table_columns import FILES, UNITS
from sentence_beam.transforms.store.verification import faults

PAGES = [Page(path) for path in (*BESIDE, *DEPLOY, *DOCS)]
BY_NAME = {page.name: page for page in PAGES}
OF_USERS = [page for page in PAGES if page.name == "README.md" or page.name.startswith("docs/")]
RESERVED = {"piece"}  # a name that is kept free, in no shard so far
pytestmark = pytest.mark.usefixtures("plain_beam")
RUN = re.compile(r"\b\d{8}T\d{6}(?:_\d{3})?Z-[0-9a-f]{6}\b")

DAY = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b")
HOME = "/home/me"  # where pages say that their stores are

# what a command needs that is not on this machine
OUTSIDE = r"gs://|s3://|postgresql://|qdrant:http|--runner"

# Pages for readers who have the extra `cpu` alone.
WITH_CPU_ALONE = ("README.md", "docs/first.md", "docs/nightly.md", "docs/index.md")
OF_OTHER_EXTRAS = (
    "pandas",
    "polars",
    "duckdb",
    "datasets",
    "sklearn",
    "scipy",
    "sentence_transformers",
)

# Pages of many commands, each of which tests of pipelines run too: their blocks run with the slow
# tests. That every command in them is understood is looked at in each run.
LONG = (
    "docs/calibration.md",
    "docs/diagnostics.md",
    "docs/recipes/write-store.md",
)

# What each Python block must print, by its page and the heading above it.
PRINTS = {
    ("docs/joins.md", "In Python"): "300 1500",
    ("docs/joins.md", "Clusters"): "8",
    ("README.md", "From Python"): "(2, 384) ",
    ("docs/api.md", "A run"): "100",
    ("docs/api.md", "Rows in memory"): "interest rates were raised again",
    ("docs/api.md", "Every command"): "'written': 300",
    ("docs/api.md", "Rows that are added"): "2 ['2026-11-22.parquet#0', '2026-11-23.parquet#0']",
    ("docs/api.md", "The encoder alone"): "(3, 128) 128 ",
    ("docs/api.md", "A store"): "384 1 300",
    ("docs/reading.md", "pyarrow"): "(300, 384)",
    ("docs/reading.md", "pandas"): "300.0",
    ("docs/reading.md", "DuckDB"): "shop.goods",
    ("docs/reading.md", "Polars"): "shop.longest",
    ("docs/reading.md", "datasets"): "(384,)",
    ("docs/reading.md", "Files for other programs"): "['shop.",
    ("docs/push.md", "Other databases"): "20",
    ("docs/store.md", "Both tables in DuckDB"): "[(300,)]\n",
    ("docs/evaluation.md", "From Python"): "spearman 8",
    ("docs/documents.md", "From Python"): "A paragraph is a better end.",
    ("docs/diagnostics.md", "From Python"): "0.",
    ("docs/search.md", "Search"): " shop.compress\n",
    ("docs/recipes/mltransform.md", "MLTransform"): "again 384",
    ("docs/recipes/mltransform.md", "Items of `rag`"): "a 384",
    ("docs/recipes/mltransform.md", "RunInference"): "the cat sat on the mat (384,)",
    ("docs/recipes/tables.md", "A data set of Hugging Face to a FAISS file"): "",
    ("docs/recipes/tables.md", "A store in other tools"): "[(300,)] (300, 1)",
    ("docs/recipes/store.md", "Recipe: a store made by your own pipeline"): "shop.compress\n",
    ("docs/recipes/embed-rows.md", "A batch"): "1 (384,) 8\n",
    (
        "docs/recipes/write-store.md",
        "A night",
    ): "committed {'added': 2, 'changed': 0, 'deleted': 0}\n",
    ("docs/recipes/write-store.md", "From Parquet"): "300\n",
    ("docs/recipes/embed-rows.md", "A stream"): "40 (384,) 1970-01-01T00:00:30Z",
    (
        "docs/recipes/embed-rows.md",
        "Pieces of documents",
    ): "a 1 They have a budget of tokens. (384,)",
    (
        "docs/recipes/neighbours.md",
        "Recipe: neighbours in your own pipeline",
    ): "300 rows have a nearest one",
    ("docs/recipes/pieces.md", "Recipe: pieces of documents"): "guide 0 Install (384,)",
}


def load(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load("reference")


# Examples


def runs_here(block: Block) -> bool:
    """Whether a block needs nothing outside of this machine and of a working installation."""
    if block.language != "console":
        return block.language == "python" or bool(block.file)
    own = all(command[0] == "sentence-beam" for command in block.commands)
    return own and not re.search(OUTSIDE, block.text)


def once(page: Page) -> list[Block]:
    """The blocks of a page that are run; those of README that a page of docs/ has too are run
    there.
    """
    there = {
        block.text for other in OF_USERS if other.name != "README.md" for block in other.blocks
    }
    return [
        b for b in page.blocks if runs_here(b) and (page.name != "README.md" or b.text not in there)
    ]


def by_length(page: Page) -> Any:
    """A page as a value of a parametrized test; a long one is slow."""
    if page.name in LONG:
        return pytest.param(page, marks=pytest.mark.slow)
    return page


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what examples name: a `demo/corpus` and its `demo/store`, reviews, their
    `store`, a task, manuals.
    """
    folder = tmp_path_factory.mktemp("made")
    texts = {"shop.compress": "Compress a file to save space.", "shop.longest": "very " * 300}
    texts |= {
        f"shop.goods.item{i}": f"Item {i} of the shop, in {i % 5} colours." for i in range(298)
    }
    module = ["shop.goods" if "goods" in name else "shop" for name in texts]
    columns = {"id": list(texts), "text": list(texts.values()), "module": module}
    write(folder / "demo" / "corpus" / "a.parquet", columns)
    options = ["--id-column", "id", "--keep-columns", "module", "--index", "auto"]
    embed(folder, "demo/corpus/*.parquet", "demo/store", *options)
    for runs in (1, 2):
        reviews = {
            "review_id": list(range(20)),
            "body": [f"Review {i}, written {runs} times." for i in range(20)],
        }
        write(folder / "reviews" / "a.parquet", reviews)
        embed(
            folder,
            "reviews/*.parquet",
            "store",
            "--text-column",
            "body",
            "--id-column",
            "review_id",
        )
    added = {"review_id": list(range(20, 25)), "body": [f"Review {i}." for i in range(20, 25)]}
    write(folder / "reviews" / "2026-11-22" / "part-0.parquet", added)
    pairs = [
        "4.5\tA dog runs.\tA dog is running.",
        "1.0\tA dog runs.\tThe shop is closed.",
        "2.5\tA cat.\tA dog.",
    ]
    (folder / "sickr-dev.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *pairs, ""]))
    document = "# Install\n\nTake it out of the box.\n\n## By hand\n\nTurn the key.\n"
    (folder / "manual").mkdir()
    (folder / "manual" / "shop.md").write_text(document)
    (folder / "prices.csv").write_text(
        "text,price,day,ok,name\nan apple,9,2026-01-02,yes,Boskop\nfive pears,100,,no,\n"
    )
    page = {"id": ["a"], "text": ["The shop is open."]}
    write(folder / "pages" / "lang=en" / "day=2026-01-02" / "a.parquet", page)
    (folder / "collection.tsv").write_text('0\t"An apple" a day\n1\tFive pears\n')
    (folder / "manuals").mkdir()
    (folder / "manuals" / "a.jsonl").write_text(
        json.dumps({"id": "a", "title": "The shop", "text": document}) + "\n"
    )
    return folder


def write(path: Path, columns: dict[str, list]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def embed(folder: Path, glob: str, store: str, *options: str) -> None:
    assert (
        main(["embed", "--input", str(folder / glob), "--store", str(folder / store), *options])
        == 0
    )


@pytest.fixture(scope="module")
def one_default_model() -> Iterator[None]:
    """`minilm`, which most blocks and commands name, is loaded once for all pages; what else it is
    given is as asked.
    """
    from sentence_beam.transforms.encoder import Encoder

    kept: dict[str, Encoder] = {}
    load = Encoder.from_recipe.__func__  # type: ignore[attr-defined]

    def of(cls: type[Encoder], recipe: Recipe, *how: Any, **named: Any) -> Encoder:
        key = repr((recipe, how, named))
        if (
            recipe.model != "minilm"
            or recipe.calibration
            or ":" in str(recipe.pooler)
            or "Calibration" in key
        ):
            return load(cls, recipe, *how, **named)
        if key not in kept:
            kept[key] = load(cls, recipe, *how, **named)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encoder, "from_recipe", classmethod(of))
        yield


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that folder, which is the current one."""
    folder = shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(folder)
    mind_unknown_words(monkeypatch)
    return folder


@pytest.mark.usefixtures("one_default_model")
@pytest.mark.parametrize("page", map(by_length, filter(once, OF_USERS)), ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_one_after_the_other(
    page: Page, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", place / "cache")
    if page.name in WITH_CPU_ALONE:
        for package in OF_OTHER_EXTRAS:
            monkeypatch.setitem(sys.modules, package, None)
    if page.name in ("README.md", "docs/first.md"):
        shutil.rmtree(place / "store")  # the page makes the default store
    for block in once(page):
        capsys.readouterr()
        where = f"{page.name}:{block.line}"
        if block.file:
            Path(block.file).write_text(block.text)
            continue
        if block.language == "python":
            exec(compile(block.text, where, "exec"), {"__name__": "page"})
            assert PRINTS[page.name, block.heading] in capsys.readouterr().out, where
            continue
        statuses = [main(with_real_runs(command[1:])) for command in block.commands]
        out, err = capsys.readouterr()
        assert statuses == [0] * (len(statuses) - 1) + [block.status], f"{where}: {statuses} {err}"
        # the page has all input, so that it can say all that is printed
        if any(b.file for b in page.blocks):
            lines = {masked(line) for line in (out + err).replace(str(place), HOME).splitlines()}
            expected = {masked(line) for line in block.printed}
            assert expected <= lines, f"{where}: not printed: {expected - lines}"
            continue
        printed = {line.split()[0] for line in out.splitlines() if line.strip()}
        expected = {line.split()[0] for line in block.printed if line.strip()} - {"..."}
        assert expected <= printed, f"{where}: nothing printed begins with {expected - printed}"
    if page.name == "docs/recipes/store.md":
        check_made_by_the_beam_example()


def masked(line: str) -> str:
    """A printed line without what another machine or minute prints: runs, decimal fractions,
    speeds, spaces, times.
    """
    if line.startswith(("speed", "stages", "time")):
        return line.split()[0]
    for what in (RUN, DAY, re.compile(r"\d[\d,]*\.\d+"), re.compile(r"\b(\d+m)?\d+s\b")):
        line = what.sub("~", line)
    return " ".join(line.split())


def with_real_runs(arguments: list[str]) -> list[str]:
    """A command's arguments with runs of the store that it names instead of runs that are
    made up.
    """
    if not any(RUN.fullmatch(word) for word in arguments):
        return arguments
    known = iter(sorted(snapshots(str(Path(arguments[arguments.index("--store") + 1]).resolve()))))
    return [next(known) if RUN.fullmatch(word) else word for word in arguments]


def check_made_by_the_beam_example() -> None:
    """The store of the page's pipeline is whole."""
    manifest = open_store("demo/own").manifest
    assert manifest.data["rows"] == {"read": 300, "written": 300, "rejected": 0}
    assert not list(faults(manifest))


def test_every_python_block_has_its_expectation() -> None:
    blocks = {
        (page.name, b.heading) for page in PAGES for b in page.blocks if b.language == "python"
    }
    assert blocks == set(PRINTS)


def test_every_console_block_is_run_or_needs_another_machine() -> None:
    """A block that is not run is one that says why: another program, a bucket, a cluster."""
    others = {"make", "pip", "gcloud", "git", "pre-commit", "uv", ".venv/bin/python"}
    for page in OF_USERS:
        for block in page.blocks:
            if block.language == "console" and not runs_here(block):
                programs = {command[0] for command in block.commands}
                assert programs & others or re.search(OUTSIDE, block.text), (
                    f"{page.name}:{block.line}"
                )


# Commands that are not run


def asked(page: Page) -> list[list[str]]:
    """Our commands in a page's blocks, those inside scripts for `embed` included, as `[command,
    *arguments]`.
    """
    commands = [
        words for block in page.blocks if block.language == "console" for words in block.commands
    ]
    ours = [words[1:] for words in commands if words[0] == "sentence-beam"]
    return ours + [
        ["embed", *words[1:]]
        for words in commands
        if words[0].endswith(("bare-metal.sh", "run.sh"))
    ]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if asked(page)], ids=lambda page: page.name
)
def test_commands_in_blocks_are_understood(page: Page) -> None:
    for command, *arguments in asked(page):
        args, _ = beam_flags.parse(reference.load_parser(command), arguments)
        assert args, (page.name, command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_flags_in_prose_are_there(page: Page) -> None:
    for text in re.findall(r"`(?:sentence-beam|python -m sentence_beam) ([^`]+)`", page.prose):
        command, *words = shlex.split(text)
        if command in ("COMMAND", "help", "completion", "--version") or "..." in text:
            continue
        assert command in COMMANDS, f"{page.name}: {text}"
        known = {
            flag
            for action in reference.load_parser(command)._actions
            for flag in action.option_strings
        }
        for word in words:
            assert not word.startswith("--") or word in known, f"{page.name}: {text}"


def test_every_flag_in_prose_is_one_of_a_command_or_of_beam() -> None:
    own = {
        flag
        for name in COMMANDS
        for action in reference.load_parser(name)._actions
        for flag in action.option_strings
    }
    known = (
        own
        | set(make_beam_parser().actions)
        | {"--runner", "--version", "--batch-size", "--workers", "--peak-tflops"}
    )
    for page in OF_USERS:
        for span in names(page.prose):
            for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", span):
                assert flag in known, f"{page.name}: `{span}`"


# The reference


def test_the_reference_is_up_to_date() -> None:
    assert BY_NAME["docs/reference.md"].text == reference.page(), "run: make docs"


def test_the_keywords_of_functions_are_up_to_date() -> None:
    keywords = load("keywords")
    written = keywords.MODULE.read_text(encoding="utf8")
    assert written == keywords.module(), "run: make docs"


def test_every_option_of_every_command_is_in_the_reference() -> None:
    page = BY_NAME["docs/reference.md"]
    every = {flag for action in every_command()._actions for flag in action.option_strings}
    assert every == {
        name.split()[0]
        for t in tables(page.section("## Every command"))
        for row in t
        for name in names(row[0])
    }
    for command in COMMANDS:
        listed = [
            name.split()[0]
            for t in tables(page.section(f"## {command}"))
            for row in t
            for name in names(row[0])
        ]
        actions = [
            action
            for action in reference.load_parser(command)._actions
            if action.help != "==SUPPRESS=="
        ]
        flags = (
            {flag for action in actions for flag in action.option_strings}
            - {"-h", "--help"}
            - every
        )
        assert {name for name in listed if name.startswith("-")} == (
            flags if command != "plan" else {"--price-per-hour"}
        ), command


def test_every_option_says_what_it_is() -> None:
    rows = [
        row for table in tables(BY_NAME["docs/reference.md"].text) for row in table if len(row) == 3
    ]
    assert not [row[0] for row in rows if not row[1]]


def test_a_help_text_is_cut_into_meaning_and_default() -> None:
    assert reference.said("rows (default: 10)") == ("rows", "10")
    assert reference.said("tokens (default: 2 (two), else 1)") == ("tokens", "2 (two), else 1")
    assert reference.said("rows") == ("rows", "")


def test_what_a_store_remembers_is_said() -> None:
    """The options that a second run takes from the store, found by what its manifest keeps."""
    (table,) = (
        t for t in tables(BY_NAME["docs/embedding.md"].section("## The next run")) if len(t[0]) == 2
    )
    listed = {name for row in table for name in names(row[1])}
    declared = declared_in(EmbedOptions)
    assert listed == {flag_of(name, declared[name]) for name in remembered()}


def remembered() -> set[str]:
    from sentence_beam.transforms.steps.options import gate_options
    from sentence_beam.transforms.steps.options.chosen_options import CONTENT, REMEMBERED

    elsewhere = {
        "calibration",
        "dtype",
        "partition",
        "unit_tokens",
        "index",
        "metric",
    }  # in the manifest, under other names
    return {*CONTENT, *REMEMBERED, *gate_options.NAMES, *elsewhere} - {
        "limit",
        "keep_types",
    }  # the types are said with --keep-columns


# Tables


def written(key: str, option: Option) -> str:
    """How a pooler's key should be written in the table: its default first, then what else it may
    be.
    """
    if option in (COUNT, LAYER):
        return key
    if option.words == COUNT.words or not (option.words or option.form):
        return f"{key}={option.default}"
    words = [word for word in (option.default, *option.words) if word is not None]
    free = ["N"] * option.number + option.form.split()[:1]
    return f"{key}={'|'.join(dict.fromkeys(map(str, [*words, *free])))}"


def full(key: str, option: Option) -> str:
    """A calibration's key with its default and everything else it may be."""
    values = [str(option.default), *(word for word in option.words if word != option.default)]
    return f"{key}={'|'.join([*values, *['N'] * option.number, *['X'] * option.decimal])}"


@pytest.mark.parametrize(
    ("pages", "heading", "there", "form"),
    [
        (["docs/poolers.md", "docs/diagnostics.md"], "## Poolers", POOLERS, written),
        (["docs/calibration.md"], "## Methods", CALIBRATIONS, full),
    ],
)
def test_the_spec_tables_have_every_name_with_its_keys(
    pages: list[str],
    heading: str,
    there: dict[str, dict[str, Option]],
    form: Callable[[str, Option], str],
) -> None:
    rows = [row for page in pages for row in tables(BY_NAME[page].section(heading))[0]]
    listed = {names(row[0])[0]: names(row[2].replace("\\|", "|")) for row in rows}
    assert listed == {
        name: [form(key, option) for key, option in keys.items()] for name, keys in there.items()
    }


def test_the_values_of_count_and_layer_are_said() -> None:
    text = BY_NAME["docs/poolers.md"].section("## Poolers")
    assert f"`count={COUNT.allowed()}`" in text
    assert f"`layer={LAYER.words[0]}`" in text


def test_a_store_holds_what_the_tables_say(made: Path) -> None:
    layout, changed, held, columns, of_pieces, fields, files, units = tables(
        BY_NAME["docs/store.md"].text
    )
    assert [names(row[0])[0] for row in changed] == CHANGED_ROWS.names
    assert sorted(name for row in held for name in names(row[0])) == sorted(
        field.name for field in dataclasses.fields(Lease)
    )
    store = made / "demo" / "store"
    data = open_store(str(store)).manifest.data
    assert {name for row in fields for name in names(row[0]) if "." not in name} == {*data, "fence"}
    listed = {name for row in columns for name in names(row[0])}
    assert listed - {"text"} == set(OWN_COLUMNS) - RESERVED
    assert {name for row in of_pieces for name in names(row[0])} >= set(PIECES.names)
    found = set(open_store(str(store)).dataset().schema.names)
    assert found <= listed | {"module"}
    known = {name.split("/")[0] for row in layout for name in names(row[0])}
    assert {path.name for path in store.iterdir() if not path.name.startswith(".")} <= known
    for group in ("rows", "work", "tokens"):
        said = set(names(next(row[1] for row in fields if names(row[0]) == [group])))
        assert said - {"--chunks", "pieces"} == set(data[group])
    assert {name for row in files for name in names(row[0])} == set(FILES.names)
    assert {name for row in units for name in names(row[0])} == set(UNITS.names)


def test_the_page_of_python_lists_exactly_the_public_names() -> None:
    page = BY_NAME["docs/api.md"]
    (commands,) = tables(page.section("## Every command"))
    public, *members = (table for table in tables(page.text) if table != commands)
    functions = [name for row in commands for name in names(row[0])]
    assert functions == [name for name in COMMANDS if name in sentence_beam.__all__]
    assert sorted(name for row in public for name in names(row[0])) == sorted(sentence_beam.__all__)
    for name in (name for table in members for row in table for name in names(row[0])):
        kind, _, member = name.partition(".")
        assert hasattr(getattr(sentence_beam, kind), member), name


def test_every_figure_of_a_run_is_explained() -> None:
    (table,) = tables(BY_NAME["docs/operations.md"].section("## Figures"))
    assert all(len(row) == 3 for row in table)
    listed = [name for row in table for name in names(row[0])]
    assert listed == [figure.name for figures in STAGES.values() for figure in figures]


def test_exit_statuses_are_those_there_are() -> None:
    kinds = [kind for kind in vars(errors).values() if hasattr(kind, "exit_code")]
    (table,) = tables(BY_NAME["docs/nightly.md"].section("## Exit statuses"))
    assert {int(row[0]) for row in table} == {
        0,
        errors.TERMINATED,
        *(kind.exit_code for kind in kinds),
    }


# Links, names, pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    for path, anchor in page.links:
        assert path.exists(), f"{page.name}: {path} is not there"
        if anchor:
            assert anchor in Page(path).anchors, (
                f"{page.name}: {path.name} has no heading #{anchor}"
            )


NAMED = re.compile(
    r"(?<![\w/.-])(?:transforms|pipelines|sentence_beam|tests|deploy|benchmarks|docs)/[\w/.-]*\w(?![\w<*])"
)
MODULE = re.compile(r"(?<![\w/.-])(?:sentence_beam|benchmarks)(?:\.[a-z_]+)+(?![\w<*])")
OF_OUR_CODE = ("docs/architecture.md", "docs/internals.md")
NOT_PUBLIC = re.compile(r"\bsentence_beam(?:\.|/| import )(?:transforms|pipelines)\b")


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda page: page.name
)
def test_files_and_modules_that_are_named_are_there(page: Page) -> None:
    for name in NAMED.findall(page.text):
        assert (ROOT / name).exists() or name in ("docs/reference.md",), (
            f"{page.name}: {name} is not there"
        )
    for name in MODULE.findall(page.text):
        path = ROOT / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), (
            f"{page.name}: {name} is no module"
        )


def test_users_need_public_names_alone() -> None:
    pages = {page.path for page in OF_USERS if page.name not in OF_OUR_CODE}
    folders = (ROOT / "docs" / "recipes", ROOT / "deploy")
    copied = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in pages | copied
        if path.suffix != ".pyc"
        for name in NOT_PUBLIC.findall(path.read_text(encoding="utf8"))
    }
    assert not wrong, "name what sentence_beam exports, or export it"


def test_what_pages_name_of_an_encoder_is_there() -> None:
    for page in PAGES:
        for name in re.findall(r"`(?:\w+ = )?[Ee]ncoder\.(\w+)", page.text):
            assert hasattr(sentence_beam.Encoder, name), f"{page.name}: an encoder has no {name}"


def test_the_layers_are_those_that_hold_in_their_order() -> None:
    (table,) = tables(BY_NAME["docs/architecture.md"].section("## Layers"))
    listed = [
        Path(name).stem for row in table for name in names(row[0]) if name.startswith("transforms/")
    ]
    assert listed == LAYERS


def test_readme_is_short() -> None:
    page = BY_NAME["README.md"]
    assert len(page.text.splitlines()) <= 140
    links = re.findall(r"\]\(docs/\w+\.md\)", page.section("## Pages"))
    assert len(set(links)) <= 13, "the index, and twelve pages"


def test_every_page_is_listed() -> None:
    pages = set(DOCS) - {ROOT / "docs" / "index.md"}
    assert pages <= {path for path, _ in BY_NAME["docs/index.md"].links}


def test_nothing_is_said_twice() -> None:
    """No paragraph, list item or row of a table of some length is on two pages, or twice on one."""
    where: dict[str, str] = {}
    for page in PAGES:
        if page.name != "docs/reference.md":
            for paragraph in page.paragraphs:
                if len(paragraph) > 100:
                    assert paragraph not in where, (
                        f"{page.name} and {where[paragraph]}: {paragraph}"
                    )
                    where[paragraph] = page.name


def test_the_site_is_built_and_fetches_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    made = list(tmp_path.rglob("*.html"))
    assert len(made) >= len(DOCS)
    for html in made:
        fetched = re.findall(
            r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^ >]*",
            html.read_text(),
        )
        assert not fetched, (html.name, fetched)
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"url\([\"']?(?:https?:)?//", style.read_text()), style.name


def test_plan_has_the_options_of_embed_and_a_price() -> None:
    """The reference says so instead of listing them twice."""
    embed, plan = (
        [action.option_strings for action in embed_options.parser(name)._actions]
        for name in ("embed", "plan")
    )
    assert [flags for flags in plan if flags != ["--price-per-hour"]] == embed
    assert len(plan) == len(embed) + 1


def test_the_page_about_erasing_has_every_class_of_file() -> None:
    section = BY_NAME["docs/erasing.md"].section("## What a file can hold of a row")
    (table,) = tables(section)
    assert {name for row in table for name in names(row[1])} == set(CLASSES) | {"temporary"}
