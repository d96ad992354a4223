"""How a fit ended: a file beside what it made, read by whoever submitted it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transforms import storage

RESULT = "fit.json"


@dataclass(frozen=True)
class FitResult:
    """Exit status and message, 0 and empty where the fit is done; then its figures."""

    run: str
    exit_code: int
    message: str
    figures: Mapping[str, Any] = field(default_factory=dict)


def write_result(output: str, result: FitResult) -> None:
    """Put how a fit goes beside what it makes."""
    said = {"run": result.run, "exit_code": result.exit_code, "message": result.message, **result.figures}
    storage.overwrite(storage.join(output, RESULT), (json.dumps(said, indent=1) + "\n").encode())


def read_result(output: str) -> FitResult | None:
    """How the last fit into a folder ended; None where there was none."""
    found = storage.storage_of(output).read_versioned(storage.join(output, RESULT))
    if found is None:
        return None
    said = json.loads(found[0])
    return FitResult(said.pop("run"), said.pop("exit_code"), said.pop("message"), said)
