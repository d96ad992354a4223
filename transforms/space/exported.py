"""The file that describes an exported store's encoder. Standard library only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from transforms.base.errors import OptionError
from transforms.space.spec import AUTO, PoolerSpec, parse_pooler

FORMAT = "sentence-beam export 1"
EXPORTED = "sentence_beam.json"


@dataclass(frozen=True)
class Exported:
    """The settings that make vectors with the model in folder `model`; defaults of the options.

    `calibration` is a folder or None; this and the paths in `pooler` are relative to the folder of
    the file.
    """

    model: str
    pooler: PoolerSpec
    prompt: str
    query_prompt: str | None
    max_tokens: int | None
    normalize: bool
    truncate_dim: int | None
    dtype: str
    calibration: str | None

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        values = {"format": FORMAT, **vars(self), "pooler": str(self.pooler)}
        text = json.dumps(values, indent=1, ensure_ascii=False)
        return f"{text}\n".encode()

    def within(self, root: Path) -> "Exported":
        """The same settings with absolute paths; the given ones are relative to `root`."""
        parts = []
        for part in self.pooler.parts:
            if part.table is not None:
                part = part.replaced(table=str(root / part.table))
            parts.append(part)
        calibration = None
        if self.calibration is not None:
            calibration = str(root / self.calibration)
        return replace(
            self,
            model=str(root / self.model),
            pooler=PoolerSpec(tuple(parts)),
            calibration=calibration,
        )

    def fill(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The settings for options of an encoder that are None or `auto`.

        If a pooler is given, all options stay: no settings.
        """
        if not options["pooler"].is_auto:
            return {}
        filled = {}
        for name, setting in vars(self).items():
            if options[name] in (None, "auto", AUTO):
                filled[name] = setting
        if options["prompt_name"] is not None:
            filled.pop("prompt", None)
        return filled


def read_exported(root: Path) -> Exported | None:
    """The settings in an exported folder, with absolute paths; None for another folder.

    Raises `OptionError` for a damaged file.
    """
    path = root / EXPORTED
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OptionError(f"{path} is not valid JSON ({error}); export the store again") from None
    names = {item.name for item in fields(Exported)}
    is_of_format = isinstance(values, dict) and values.pop("format", None) == FORMAT
    if not is_of_format or set(values) != names:
        raise OptionError(f"{path} is of another format; export the store again")
    values["pooler"] = parse_pooler(values["pooler"])
    return Exported(**values).within(root)
