"""The output of a finished command, for a person, for a program, or for nobody."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentence_beam.transforms.base.plain_values import to_json_value


@dataclass(frozen=True)
class CommandOutput:
    """The closing lines of a command, and the same facts as values for `--json`.

    `always` marks lines that the command exists for, which --quiet does not silence. `error` ended
    the command after these lines were computed.
    """

    lines: Sequence[str]
    values: Mapping[str, Any]
    always: bool = False
    error: Exception | None = None

    def show(self, command: str, quiet: bool, as_json: bool) -> None:
        """Print the values as one JSON object, or the lines; nothing if both are not wanted."""
        if as_json:
            # else JSON's own escapes
            as_it_is = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
            print(
                json.dumps(
                    to_json_value({"command": command, **self.values}),
                    ensure_ascii=not as_it_is,
                    allow_nan=False,
                )
            )
        elif self.lines and (self.always or not quiet):
            print("\n".join(self.lines))
