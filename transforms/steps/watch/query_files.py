"""Read watched queries from files."""

from dataclasses import dataclass

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.numbers import format_count
from sentence_beam.transforms.corpus.formats.registry import find_compression, find_format
from sentence_beam.transforms.corpus.query_rows import QueryFiles, read_queries


@dataclass(frozen=True)
class QueryList:
    """Queries by id and text, and notes about what was left out."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read_query_file(path: str) -> QueryList:
    """Return the queries of a file, each once.

    A file of plain text has a query a line, whose id is its text; a table has columns `id` and
    `text`. Raises OptionError for a file without a query, and for two queries of one id.
    """
    kind = find_format(path)
    notes = []
    if kind in ("", "text") and not find_compression(path, "text"):
        lines = storage.lines_of(storage.read_text(path, cite("queries")))
        texts = [line.strip() for line in lines if line.strip()]
        names = list(texts)
        empty = sum(not line.strip() for line in lines)
    else:
        queries = read_queries(QueryFiles((path,), text_column="text", id_column="id"))
        names = list(queries.names)
        texts = list(queries.texts)
        empty = queries.without_text
    if empty:
        notes.append(f"{format_count(empty, 'empty query', 'empty queries')} of {path} left out")
    by_id: dict[str, str] = {}
    for name, text in zip(names, texts, strict=True):
        if by_id.setdefault(name, text) != text:
            raise OptionError(
                f"{cite('queries')} {path}: two queries have the id {name!r}; rename one"
            )
    twice = len(names) - len(by_id)
    if twice:
        times = format_count(twice, "query", "queries")
        notes.append(f"{times} of {path} named twice, kept once")
    if not by_id:
        raise OptionError(f"{cite('queries')} {path} holds no query; write one a line")
    return QueryList(tuple(by_id), tuple(by_id.values()), tuple(notes))
