"""README.md against the code: its examples run, and its tables name what there is, no more and no less."""

import argparse
import importlib
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.cli import COMMANDS, main
from transforms import errors
from transforms.calibration.spec import CALIBRATIONS
from transforms.space.spec import COUNT, LAYER, POOLERS, Option
from transforms.store import open_store
from transforms.store.shards import OWN_COLUMNS
from transforms.store.verify import faults

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf8")
RESERVED = {"piece"}  # a name that is kept free, in no shard so far

# What each example must print, by the line that stands before it.
PRINTS = {
    "pyarrow:": "(40, 384)",
    "pandas:": "40.0",
    "DuckDB:": "shop.goods",
    "Polars:": "shop.longest",
    "datasets:": "(384,)",
    "`--output hits.parquet` or `hits.jsonl` writes the hits. In Python:": " shop.compress\n",
    "The encoder alone, without Beam and without a store:": "(2, 384) ",
    "are PTransforms:": "",
}


def code_blocks() -> list[tuple[str, str]]:
    """(line before, code) of every Python block."""
    blocks = re.finditer(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [(README[: block.start()].rstrip().splitlines()[-1], block[1]) for block in blocks]


def section(heading: str) -> str:
    """The text below a heading, up to the next one of its level or above."""
    level = heading.split()[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{2,{len(level)}}} |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, f"README has no heading {heading!r}"
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """Every table's rows as cells, headings left out."""
    found = re.findall(r"^\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE)
    return [[[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in t.splitlines()] for t in found]


def names(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a little `demo/corpus` and the `demo/store` made of it by the default model."""
    folder = tmp_path_factory.mktemp("readme")
    texts = {"shop.compress": "Compress a file to save space.", "shop.longest": "very " * 300}
    texts |= {f"shop.goods.item{i}": f"Item {i} of the shop, in {i % 5} colours." for i in range(38)}
    module = ["shop.goods" if "goods" in name else "shop" for name in texts]
    (folder / "demo" / "corpus").mkdir(parents=True)
    table = pa.table({"id": list(texts), "text": list(texts.values()), "module": module})
    pq.write_table(table, folder / "demo" / "corpus" / "a.parquet")
    options = ["--id-column", "id", "--keep-columns", "text,module", "--index", "auto"]
    inputs = ["--input", str(folder / "demo/corpus/*.parquet"), "--output", str(folder / "demo/store")]
    assert main(["embed", *inputs, *options]) == 0
    return folder


@pytest.mark.parametrize(("label", "code"), code_blocks(), ids=[label for label, _ in code_blocks()])
def test_an_example_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], label: str, code: str
) -> None:
    monkeypatch.chdir(place)
    if "datasets" in code:
        monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", place / "cache")
    exec(compile(code, f"README.md, {label}", "exec"), {"__name__": "readme"})
    assert PRINTS[label] in capsys.readouterr().out


def test_the_beam_example_makes_a_whole_store(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    code = next(code for _, code in code_blocks() if "beam.Pipeline" in code)
    exec(code.replace("demo/own", "demo/again"), {"__name__": "readme"})
    manifest = open_store("demo/again").manifest
    assert manifest.data["rows"] == {"read": 40, "written": 40, "rejected": 0}
    assert not list(faults(manifest))


def test_every_example_has_its_expectation() -> None:
    assert {label for label, _ in code_blocks()} == set(PRINTS)


def option_sections() -> dict[str, str]:
    """The headings under Options, by each command they name."""
    headings = re.findall(r"^### (.*)$", section("## Options"), re.MULTILINE)
    return {command: heading for heading in headings for command in heading.split(", ")}


def parser_of(command: str) -> argparse.ArgumentParser:
    """The command's parser (`plan` has the one of `embed`)."""
    module = importlib.import_module(f"pipelines.{command}")
    return (
        module.parser()
        if hasattr(module, "parser")
        else importlib.import_module("pipelines.embed_options").parser(command)
    )


def test_every_command_has_its_options_listed() -> None:
    assert set(option_sections()) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_table_has_exactly_the_flags_of_the_command(command: str) -> None:
    rows = [row for table in tables(section(f"### {option_sections()[command]}")) for row in table]
    listed = [name.split()[0] for row in rows for name in names(row[0])]
    flags = [flag for action in parser_of(command)._actions for flag in action.option_strings]
    assert sorted(listed) == sorted(set(flags) - {"-h", "--help"})


@pytest.mark.parametrize("command", COMMANDS)
def test_required_options_and_choices_are_said(command: str) -> None:
    rows = {name.split()[0]: row for table in tables(section(f"### {option_sections()[command]}"))
            for row in table for name in names(row[0])}  # fmt: skip
    for action in parser_of(command)._actions:
        for flag in set(action.option_strings) & set(rows):
            assert (rows[flag][2] == "required") == action.required, flag
            if action.choices:
                assert rows[flag][0].replace("\\|", "|") == f"`{flag} {'|'.join(map(str, action.choices))}`"


def test_commands_in_examples_are_understood() -> None:
    lines = re.findall(r"^\$ sentence-beam (.*)$", README, re.MULTILINE)
    assert {line.split()[0] for line in lines} >= {"embed", "search", "files"}
    for line in lines:
        command, *arguments = shlex.split(line)
        assert parser_of(command).parse_known_args(arguments)[1] == [], line


def written(key: str, option: Option) -> str:
    """How a pooler's key should stand in the table: its default first, then what else it may be."""
    if option in (COUNT, LAYER):
        return key
    if option.words == COUNT.words or not (option.words or option.form):
        return f"{key}={option.default}"
    words = [word for word in (option.default, *option.words) if word is not None]
    free = ["N"] * option.number + option.form.split()[:1]
    return f"{key}={'|'.join(dict.fromkeys(map(str, [*words, *free])))}"


def test_the_poolers_are_those_there_are_with_their_keys() -> None:
    table = tables(section("## Models and poolers"))[0]
    listed = {names(row[0])[0]: names(row[2].replace("\\|", "|")) for row in table}
    assert listed == {name: [written(key, option) for key, option in keys.items()] for name, keys in POOLERS.items()}


def test_the_calibrations_are_those_there_are_with_their_keys() -> None:
    table = tables(section("## Calibrations"))[0]
    listed = {names(row[0])[0]: names(row[2].replace("\\|", "|")) for row in table}
    calibrations = {name: [full(key, option) for key, option in keys.items()] for name, keys in CALIBRATIONS.items()}
    assert listed == calibrations


def full(key: str, option: Option) -> str:
    """A key with its default and everything else it may be."""
    values = [str(option.default), *(word for word in option.words if word != option.default)]
    return f"{key}={'|'.join([*values, *['N'] * option.number, *['X'] * option.decimal])}"


def test_the_values_of_count_and_layer_are_said() -> None:
    text = section("## Models and poolers")
    assert f"`count={COUNT.allowed()}`" in text
    assert f"`layer={LAYER.words[0]}`" in text


def test_a_store_holds_what_the_tables_say(place: Path) -> None:
    layout, columns, fields = tables(section("## What a store holds"))
    store = place / "demo" / "store"
    data = open_store(str(store)).manifest.data
    assert {name for row in fields for name in names(row[0])} == set(data)
    listed = {name for row in columns for name in names(row[0])}
    assert listed == set(OWN_COLUMNS) - RESERVED
    made = set(open_store(str(store)).dataset().schema.names)
    assert made <= listed | {"text", "module"}
    known = {name.split("/")[0] for row in layout for name in names(row[0])}
    assert {path.name for path in store.iterdir() if not path.name.startswith(".")} <= known
    for group in ("rows", "work", "tokens"):
        assert set(names(next(row[1] for row in fields if names(row[0]) == [group]))) == set(data[group])
    said = names(next(row[1] for row in fields if names(row[0]) == ["shards"]))
    assert set(said) == set(data["shards"][0])


def test_exit_statuses_are_those_there_are() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    listed = {int(row[0]) for row in tables(section("## When it fails"))[0]}
    assert listed == {0, *(kind.exit_code for kind in kinds)}


def test_links_within_the_page_and_files_named_are_there() -> None:
    anchors = {
        re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", README, re.M)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", README)) <= anchors
    for path in re.findall(r"`((?:tests|deploy)/[\w/.]+)`", README):
        assert (ROOT / path).is_file(), path
