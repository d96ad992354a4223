"""Names of labels, and the numbers that stand for them in data: `--labels
contradiction=2,entailment=0,neutral=1`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transforms.base.errors import OptionError

# SNLI's pairs whose annotators did not agree: in its own files, and on the hub
WITHOUT_CONSENSUS = ("-", "-1")


@dataclass(frozen=True)
class Labels:
    """The names of the labels in their order, and the name of each number."""

    names: tuple[str, ...]
    of_number: Mapping[str, str]

    def named(self, label: str) -> str | None:
        """The name of a label as a file has it; None if it says that there is no label."""
        if label in self.names:
            return label
        if label == "" or (label in WITHOUT_CONSENSUS and label not in self.of_number):
            return None
        return self.of_number.get(label, label)


def read_labels(words: Sequence[str]) -> Labels:
    """The labels that the values of `--labels` name, NAME or NAME=NUMBER each. Raises OptionError
    for a repeated one.

    >>> read_labels(["entailment=0", "neutral"]).named("0")
    'entailment'
    """
    names: list[str] = []
    of_number: dict[str, str] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        if not name or not number.removeprefix("-").isdecimal():
            name, number = word, ""
        if name in names or number in of_number:
            raise OptionError(f"--labels: {word} repeats a label or a number; name each once")
        names.append(name)
        if number:
            of_number[number] = name
    return Labels(tuple(names), of_number)
