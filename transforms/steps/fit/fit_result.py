"""The result of a fit: a file beside its output, read by the process that submitted it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import OptionError, cite, refuse_damage
from sentence_beam.transforms.calibration.calibration import INFO
from sentence_beam.transforms.space.token_table import TABLE

RESULT = "fit.json"


@dataclass(frozen=True)
class FitResult:
    """Exit status and message, 0 and empty if the fit is done; then its figures."""

    run: str
    exit_code: int
    message: str
    figures: Mapping[str, Any] = field(default_factory=dict)


def check_output(folder: str) -> None:
    """Raise OptionError for a folder that holds something and was not made by a fit."""
    place = storage.storage_of(folder)
    if storage.is_local(folder) and place.stat(folder) is not None:
        raise OptionError(f"{cite('output')} {folder} is a file; name a folder")
    there = storage.names_below(folder)
    if there and not {RESULT, INFO, TABLE} & set(there):
        raise OptionError(
            f"{cite('output')} {folder} holds {there[0]} and was not made by fit; name a new folder"
        )


def write_result(output: str, result: FitResult) -> None:
    """Write the result of a fit beside its output."""
    content = {
        "run": result.run,
        "exit_code": result.exit_code,
        "message": result.message,
        **result.figures,
    }
    storage.overwrite(storage.join(output, RESULT), (json.dumps(content, indent=1) + "\n").encode())


def read_result(output: str) -> FitResult | None:
    """Read the result of the last fit into a folder; None if there is none. Raises
    SentenceBeamError if its file is damaged.
    """
    path = storage.join(output, RESULT)
    stored = storage.storage_of(output).read_versioned(path)
    if stored is None:
        return None
    with refuse_damage(f"{path} is not what the fit wrote", "fit again"):
        content = json.loads(stored[0])
        run, exit_code, message = (content.pop(name) for name in ("run", "exit_code", "message"))
        return FitResult(run, exit_code, message, content)
