"""Options of `distill`: the model, the table and its folder."""

import os
from pathlib import Path

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import values
from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.base.extras import require_package
from sentence_beam.transforms.base.option import option, options
from sentence_beam.transforms.options.common import (
    CSV,
    DELIMITER,
    DEVICE,
    FORMAT,
    JSON_ROWS,
    MODEL,
    REVISION,
    TEXT_COLUMN,
    declare_input,
)
from sentence_beam.transforms.space import DEFAULT_MODEL

RECORD = "distill.json"
WORDS = 20_000
DIM = 256
NEEDED = ("model2vec", "skeletoken")


@options
class DistillOptions:
    """Options of one distillation.

    `words` is the largest number of words of the `input` (None: none) that become tokens.
    """

    model: str = option(MODEL, group="model", default=DEFAULT_MODEL)
    revision: str | None = option(REVISION, group="model", default=None)
    dim: int = option(
        f"dimensions of the new vectors, at most the model's (default: {DIM})",
        kind=values.positive,
        metavar="D",
        group="model",
        default=DIM,
    )
    output: str = option(
        "folder of the new model", kind=values.filled, metavar="DIR", group="model"
    )
    overwrite: bool = option(
        "replace an earlier distillation in --output (default: no)", group="model", default=False
    )
    input: tuple[str, ...] | None = option(
        declare_input("a corpus whose words become tokens beside the model's own", "none"),
        group="words",
        default=None,
    )
    words: int = option(
        "the most words of the corpus that become tokens, the frequent ones first (default:"
        f" {WORDS})",
        kind=values.positive,
        metavar="N",
        group="words",
        default=WORDS,
    )
    format: str = option(FORMAT, group="words", default="auto")
    delimiter: str | None = option(DELIMITER, group="words", default=None)
    csv: str | None = option(CSV, group="words", default=None)
    json_rows: str | None = option(JSON_ROWS, group="words", default=None)
    text_column: str | None = option(TEXT_COLUMN, group="words", default=None)
    device: str = option(DEVICE, group="machine", default="auto")


def check_installed() -> None:
    """Raise MissingExtraError if a package is not installed."""
    for package in NEEDED:
        require_package(package, "train", "distilling")


def check_output(options: DistillOptions) -> Path:
    """Return the folder to write.

    Raises OptionError for a URL, a file, and a folder that exists without `--overwrite` or was
    written by something else.
    """
    named = f"{cite('output')} {options.output}"
    if not storage.is_local(options.output):
        raise OptionError(f"{named}: a model is written to a local folder; copy it from there")
    output = Path(storage.absolute(options.output))
    if output.is_file():
        raise OptionError(f"{named} is a file; name a folder")
    if not os.path.lexists(output) or (output.is_dir() and not any(output.iterdir())):
        return output
    if not options.overwrite:
        raise OptionError(
            f"{named} exists; say {cite('overwrite=True')} to replace it, or name another folder"
        )
    if not (output / RECORD).is_file():
        raise OptionError(f"{named} exists and no distillation wrote it; name another folder")
    return output
