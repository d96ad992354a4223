"""The file of an exported store's encoder: its model and how its vectors are made. Standard library
only.
"""

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
    """The settings with which vectors are made of the model in folder `model`; they are defaults of
    the options.

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
        """The bytes of the file with these settings."""
        return (
            json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"
        ).encode()

    def within(self, root: Path) -> "Exported":
        """The same settings with absolute paths, from those relative to `root`."""
        spec = parse_pooler(self.pooler)
        parts = (
            p.replaced(table=str(root / str(p.table))) if p.table is not None else p
            for p in spec.parts
        )
        calibration = None if self.calibration is None else str(root / self.calibration)
        return replace(
            self,
            model=str(root / self.model),
            pooler=str(PoolerSpec(tuple(parts))),
            calibration=calibration,
        )

    def fill(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of an encoder with those that are None or `auto` filled in; unchanged where a
        pooler was given.
        """
        if options["pooler"] != "auto":
            return dict(options)
        filled = {
            name: _filled(value, getattr(self, name, None)) for name, value in options.items()
        }
        if options.get("prompt_name") is not None:
            filled["prompt"] = options["prompt"]
        return filled


def _filled(given: Any, stated: Any) -> Any:
    return stated if given is None or given == "auto" else given


def read_exported(root: Path) -> Exported | None:
    """The settings in an exported folder, paths made whole; None for another folder. `OptionError`
    if damaged.
    """
    path = root / EXPORTED
    if not path.is_file():
        return None
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OptionError(f"{path} is not valid JSON ({error}); export the store again") from None
    names = {item.name for item in fields(Exported)}
    if not isinstance(said, dict) or said.pop("format", None) != FORMAT or set(said) != names:
        raise OptionError(f"{path} is of another format; export the store again")
    return Exported(**said).within(root)
