"""Names of labels, and their numbers in data: `--labels contradiction=2,entailment=0,neutral=1`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sentence_beam.transforms.base.errors import OptionError, cite

# pairs of SNLI whose annotators disagreed: in its own files, and on the hub
WITHOUT_CONSENSUS = ("-", "-1")


@dataclass(frozen=True)
class Labels:
    """The names of the labels in their order, and the name of each number."""

    names: tuple[str, ...]
    by_number: Mapping[str, str]

    def named(self, label: str) -> str | None:
        """Return the name of a label in a file, or None for a row without a label."""
        if label in self.names:
            return label
        if label == "" or (label in WITHOUT_CONSENSUS and label not in self.by_number):
            return None
        return self.by_number.get(label, label)


def read_labels(words: Sequence[str]) -> Labels:
    """Parse the values of `--labels`, NAME or NAME=NUMBER each.

    Raises OptionError for a repeated one.

    >>> read_labels(["entailment=0", "neutral"]).named("0")
    'entailment'
    """
    names: list[str] = []
    by_number: dict[str, str] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        if not name or not number.removeprefix("-").isdecimal():
            name = word
            number = ""
        if name in names or number in by_number:
            raise OptionError(
                f"{cite('labels')}: {word} repeats a label or a number; name each once"
            )
        names.append(name)
        if number:
            by_number[number] = name
    return Labels(tuple(names), by_number)
