"""What is diagnosed."""

from dataclasses import dataclass

from transforms.values import read

SAMPLE = 10_000


@dataclass(frozen=True)
class DiagnoseOptions:
    """One source (a store, files, or pairs of tasks) or a sentence alone, and the figures to make of it.

    `labels` are those of answers in tasks `qa:`; empty: entailment, true and yes. `figures` empty: those that the
    source has without more than it says (of a store, those of its vectors alone). `poolers` are run over the texts; a
    store's vectors are looked at as they are, too. `model` None: the store's, else the bundled one. `table` is a folder
    of token statistics. `sample`: so many texts or pairs at most.
    """

    store: str | None = None
    input: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    sentence: str | None = None
    figures: tuple[str, ...] = ()
    poolers: tuple[str, ...] = ()
    model: str | None = None
    revision: str | None = None
    table: str | None = None
    sample: int = SAMPLE
    format: str = "auto"
    delimiter: str | None = None
    text_column: str = "text"
    device: str = "auto"

    def __post_init__(self) -> None:
        read(self, {})
