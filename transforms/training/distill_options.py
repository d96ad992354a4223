"""What is distilled, and where to."""

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from transforms import storage
from transforms.errors import MissingExtraError, OptionError
from transforms.extras import pip_line
from transforms.space import DEFAULT_MODEL

RECORD = "distill.json"
WORDS = 20_000
NEEDED = ("model2vec", "skeletoken")


@dataclass(frozen=True)
class DistillOptions:
    """A distillation, as a user says it.

    `words`: the most words of the `input` (None: none) that become tokens.
    """

    output: str
    dim: int = 256
    model: str = DEFAULT_MODEL
    revision: str | None = None
    input: tuple[str, ...] | None = None
    format: str = "auto"
    delimiter: str | None = None
    text_column: str = "text"
    words: int = WORDS
    device: str = "auto"
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.input is not None:
            object.__setattr__(self, "input", tuple(self.input))


def check_installed() -> None:
    """Raise MissingExtraError where a package is not installed."""
    missing = next((name for name in NEEDED if importlib.util.find_spec(name) is None), None)
    if missing:
        raise MissingExtraError(f"distilling needs {missing}: {pip_line('train')}")


def output_of(options: DistillOptions) -> Path:
    """The folder to write. Raises OptionError for a URL, a file, and a folder that the options do not speak of."""
    said = f"--output {options.output}"
    if not storage.is_local(options.output):
        raise OptionError(f"{said}: a model is written to a local folder; copy it from there")
    output = Path(storage.absolute(options.output))
    if output.is_file():
        raise OptionError(f"{said} is a file; name a folder")
    if not os.path.lexists(output) or (output.is_dir() and not any(output.iterdir())):
        return output
    if not options.overwrite:
        raise OptionError(f"{said} is there; say --overwrite to replace it, or name another folder")
    if not (output / RECORD).is_file():
        raise OptionError(f"{said} is there and no distillation wrote it; name another folder")
    return output
