"""The file that describes an exported store's encoder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.base.json_entries import positive, text
from sentence_beam.transforms.space.json_files import read_fields, read_json
from sentence_beam.transforms.space.pooler_spec import AUTO, PoolerSpec, parse_pooler

FORMAT = "sentence-beam export 1"
EXPORTED = "sentence_beam.json"


def _read_pooler(value: Any, where: str) -> PoolerSpec:
    return parse_pooler(text(value, where))


@dataclass(frozen=True)
class Exported:
    """The settings that make vectors with the model in folder `model`; defaults of the options.

    `calibration` is a folder or None; this and the paths in `pooler` are relative to the folder of
    the file.
    """

    model: str
    pooler: Annotated[PoolerSpec, _read_pooler]
    prompt: str
    query_prompt: str | None
    max_tokens: Annotated[int, positive] | None
    normalize: bool
    truncate_dim: Annotated[int, positive] | None
    dtype: str
    calibration: str | None

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        values = {"format": FORMAT, **vars(self), "pooler": str(self.pooler)}
        text = json.dumps(values, indent=1, ensure_ascii=False)
        return f"{text}\n".encode()

    def resolve_within(self, root: Path) -> "Exported":
        """The same settings with absolute paths; the given ones are relative to `root`."""
        parts = []
        for part in self.pooler.parts:
            if part.table is not None:
                part = part.replaced(table=str(root / part.table))
            parts.append(part)
        calibration = str(root / self.calibration) if self.calibration is not None else None
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
    values = read_json(path)
    names = {item.name for item in fields(Exported)}
    if values.pop("format", None) != FORMAT or set(values) != names:
        raise OptionError(f"{path} is of another format; export the store again")
    return read_fields(Exported, values, path).resolve_within(root)
