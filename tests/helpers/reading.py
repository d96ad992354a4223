"""The rows of input files as `embed` reads them, and errors of one line, without a command."""

from typing import Any, NamedTuple

import pytest

from sentence_beam.transforms.corpus import Columns, Rejected, list_files, read_files


class Rows(NamedTuple):
    """The rows of files in the order of their units."""

    ids: list[str]
    texts: list[str]
    kept: list[dict[str, Any]]
    rejects: list[Rejected]

    @property
    def reasons(self) -> list[str]:
        """Why rows are rejected."""
        return [reject.reason for reject in self.rejects]


def read(pattern: object, file_format: str = "auto", **columns: Any) -> Rows:
    """Read all rows of the files that a pattern names."""
    units = list(read_files(list_files([str(pattern)], file_format), Columns(**columns)))
    return Rows(
        ids=[row_id for unit in units for row_id in unit.ids],
        texts=[text for unit in units for text in unit.texts],
        kept=[row for unit in units if unit.kept is not None for row in unit.kept.to_pylist()],
        rejects=[reject for unit in units for reject in unit.rejects],
    )


def refused(error: type[Exception], *names: object) -> Any:
    """Expect an error of one line that holds every name."""

    def check(found: Exception) -> bool:
        assert all(str(name) in str(found) for name in names), found
        return "\n" not in str(found)

    return pytest.RaisesExc(error, check=check)
