"""Read watched queries and their judgements from files."""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.numbers import counted
from sentence_beam.transforms.corpus.formats.registry import compression_of, format_of
from sentence_beam.transforms.corpus.queries import QueryFiles, read_queries
from sentence_beam.transforms.store.manifest import Manifest
from sentence_beam.transforms.store.shards.reading import read_shard
from sentence_beam.transforms.store.watched import Grades

NAMED = 3  # unknown queries or rows that a note names
HEADERS = ("query-id", "query_id", "qid", "query")  # first cells of a header


@dataclass(frozen=True)
class QueryList:
    """Queries by id and text, and notes about what was left out."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class JudgementList:
    """Grades of rows for each query, and notes about unknown queries and rows."""

    grades: Grades
    notes: tuple[str, ...] = ()


def read_query_file(path: str) -> QueryList:
    """Return the queries of a file, each once.

    A file of plain text has a query a line, whose id is its text; a table has columns `id` and
    `text`. Raises OptionError for a file without a query, and for two queries of one id.
    """
    kind = format_of(path)
    notes = []
    if kind in ("", "text") and not compression_of(path, "text"):
        lines = storage.lines_of(storage.read_text(path, "--queries"))
        texts = [line.strip() for line in lines if line.strip()]
        names = list(texts)
        empty = sum(not line.strip() for line in lines)
    else:
        found = read_queries(QueryFiles((path,), text_column="text", id_column="id"))
        names = list(found.names)
        texts = list(found.texts)
        empty = found.without_text
    if empty:
        notes.append(f"{counted(empty, 'empty query', 'empty queries')} of {path} left out")
    by_id: dict[str, str] = {}
    for name, text in zip(names, texts, strict=True):
        if by_id.setdefault(name, text) != text:
            raise OptionError(f"--queries {path}: two queries have the id {name!r}; rename one")
    twice = len(names) - len(by_id)
    if twice:
        times = counted(twice, "query", "queries")
        notes.append(f"{times} of {path} named twice, kept once")
    if not by_id:
        raise OptionError(f"--queries {path} holds no query; write one a line")
    return QueryList(tuple(by_id), tuple(by_id.values()), tuple(notes))


def read_judgement_file(path: str, queries: Collection[str]) -> JudgementList:
    """Return the judgements of known queries in a file.

    A line has query id, row id and grade, with tabs between them (in `.csv`: commas), or is a line
    of TREC's qrels: query id, any word, row id, grade. Raises OptionError for another line.
    """
    data = storage.read_text(path, "--judgements")
    grades: Grades = {}
    unknown: dict[str, int] = {}
    for number, line in enumerate(storage.lines_of(data), 1):
        if not line.strip():
            continue
        cells = _cells(line, path)
        if number == 1 and cells[0] in HEADERS:
            continue
        query, row, grade = _judgement(cells, f"--judgements {path}, line {number}")
        if query in queries:
            grades.setdefault(query, {})[row] = grade
        else:
            unknown[query] = unknown.get(query, 0) + 1
    if not grades:
        raise OptionError(
            f"--judgements {path} judges none of the queries; its first column is their ids"
        )
    notes = []
    if unknown:
        lines = counted(sum(unknown.values()), "judgement")
        notes.append(f"{lines} of unknown queries left out: {_some(unknown)}")
    return JudgementList(grades, tuple(notes))


def _cells(line: str, path: str) -> list[str]:
    for mark, is_used in (("\t", True), (",", path.endswith(".csv"))):
        if mark in line and is_used:
            return [cell.strip() for cell in line.split(mark)]
    return line.split()


def _judgement(cells: list[str], where: str) -> tuple[str, str, int]:
    if len(cells) == 4:
        cells = [cells[0], *cells[2:]]
    try:
        query, row, grade = cells
        return query, row, int(grade)
    except ValueError:
        raise OptionError(
            f"{where}: it has neither query id, row id and whole grade with tabs between them, nor"
            " the four columns of TREC's qrels"
        ) from None


def unknown_rows(manifest: Manifest, grades: Grades) -> list[str]:
    """Return a note on judged rows that a snapshot lacks; no note if it has them all."""
    judged = {row for rows in grades.values() for row in rows}
    wanted = pa.array(sorted(judged), pa.string())
    missing = set(judged)
    for number in range(len(manifest.shards)):
        shard = manifest.shard(number)
        for batch in read_shard(shard.full_path, ["id"], shard.bytes):
            ids = batch.column(0)
            missing -= set(ids.filter(pc.is_in(ids, wanted)).to_pylist())
    if not missing:
        return []
    rows = counted(len(missing), "judged row is", "judged rows are")
    return [f"{rows} not in the store, and count as never found: {_some(missing)}"]


def _some(names: Collection[str]) -> str:
    shown = [repr(name) for name in sorted(names)[:NAMED]]
    rest = len(names) - len(shown)
    if rest:
        shown.append(f"and {rest:,} more")
    return ", ".join(shown)
