"""Files as other programs write them: what wrote one, its bytes, and the right rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sentence_beam.transforms.corpus import InputFile, match_inputs, read_header, read_values
from sentence_beam.transforms.corpus.syntax import CsvSyntax, Syntax


@dataclass(frozen=True)
class Written:
    """A file: who writes such ones, its bytes, its rows under a header; "!" for a rejected row."""

    by: str
    data: bytes
    rows: Sequence[Any]
    name: str = "a.csv"
    header: tuple[str, ...] = ("id", "text")
    options: dict[str, str] = field(default_factory=dict)

    def file_in(self, folder: Path) -> InputFile:
        """Write the file."""
        return file_of(folder / self.name, self.data, **self.options)


def file_of(path: Path, data: bytes, **options: str) -> InputFile:
    """Write a file that is read with options for its syntax."""
    path.write_bytes(data)
    return read_as(path, **options)


def read_as(path: Path, **options: str) -> InputFile:
    """Return a file that is read with options for its syntax."""
    (file,) = match_inputs(str(path))
    csv = CsvSyntax.parse(options.get("csv", ""))
    return replace(file, syntax=Syntax(options.get("delimiter"), csv, options.get("json_rows")))


def rows_of(file: InputFile, names: Sequence[str]) -> list[Any]:
    """Return the rows of a file with the values of these columns; "!" for a rejected one."""
    header = read_header(file)
    assert [name for name in header if name in names] == list(names), header
    return ["!" if row.reason else tuple(row.values) for row in read_values(file, names)]
