"""The file that describes an exported store's encoder. Standard library only."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from transforms.base.errors import OptionError
from transforms.space.spec import PoolerSpec, parse_pooler

FORMAT = "sentence-beam export 1"
EXPORTED = "sentence_beam.json"


@dataclass(frozen=True)
class Exported:
    """The settings that make vectors with the model in folder `model`; defaults of the options.

    `pooler` is a SPEC. `calibration` is a folder or None; these and the paths in `pooler` are
    relative to the folder of the file.
    """

    model: str
    pooler: str
    prompt: str
    max_tokens: int | None
    normalize: bool
    truncate_dim: int | None
    dtype: str
    calibration: str | None

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        values = {"format": FORMAT, **asdict(self)}
        text = json.dumps(values, indent=1, ensure_ascii=False)
        return f"{text}\n".encode()

    def within(self, root: Path) -> "Exported":
        """The same settings with absolute paths; the given ones are relative to `root`."""
        parts = []
        for part in parse_pooler(self.pooler).parts:
            if part.table is not None:
                part = part.replaced(table=str(root / part.table))
            parts.append(part)
        calibration = None
        if self.calibration is not None:
            calibration = str(root / self.calibration)
        return replace(
            self,
            model=str(root / self.model),
            pooler=str(PoolerSpec(tuple(parts))),
            calibration=calibration,
        )

    def fill(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """An encoder's options; None and `auto` are filled in.

        If a pooler is given, they are unchanged.
        """
        if options["pooler"] != "auto":
            return dict(options)
        filled = dict(options)
        for name, value in options.items():
            if value is None or value == "auto":
                filled[name] = getattr(self, name, None)
        if options.get("prompt_name") is not None:
            filled["prompt"] = options["prompt"]
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
    return Exported(**values).within(root)
