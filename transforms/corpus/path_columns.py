"""The columns of a file whose path has some more (see path_values); the file's own come first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sentence_beam.transforms.corpus.column_checks import FileColumns
from sentence_beam.transforms.corpus.path_values import parse_path_values
from sentence_beam.transforms.corpus.row_blocks import Columns


def add_path_columns(own: FileColumns) -> FileColumns:
    """Return the columns of a file with those that its path has."""
    values = parse_path_values(own.file.path)
    return PathColumns(own.file, own, values) if values else own


@dataclass(frozen=True)
class PathColumns(FileColumns):
    """The `own` columns of a file, and `values` of its path, which can be kept or fill templates.

    A column of the path is text unless a type is requested. The text and ids are columns of the
    file.
    """

    own: FileColumns
    values: Mapping[str, str | None] = field(hash=False)

    def names(self) -> Sequence[str]:
        own = self.own.names()
        return [*own, *(name for name in self.values if name not in own)]

    def check(self, columns: Columns) -> None:
        self.own.check(replace(columns, keep=self._drop_of_path(columns.keep)))

    def find_types(self, keep: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        own = self.own.find_types(self._drop_of_path(keep))
        return (*own, *((name, "") for name in self._find_in_path(keep)))

    def find_existing(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        own = self.own.find_existing(self._drop_of_path(names))
        return (*own, *self._find_in_path(names)) if own is not None else None

    def read_first_keys(self) -> list[str] | None:
        return self.own.read_first_keys()

    def read_first_values(self, rows: int) -> dict[str, list[Any]]:
        return self.own.read_first_values(rows)

    @property
    def trimmed_names(self) -> tuple[str, ...]:
        return self.own.trimmed_names

    def _find_in_path(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the named columns that only the path has."""
        if not any(name in self.values for name in names):
            return ()
        own = self.own.names()
        return tuple(
            name
            for name in names
            if name in self.values and not any(f"{other}.".startswith(f"{name}.") for other in own)
        )

    def _drop_of_path(self, names: tuple[str, ...]) -> tuple[str, ...]:
        of_path = self._find_in_path(names)
        return tuple(name for name in names if name not in of_path)
