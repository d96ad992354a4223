"""Named runs (`--job`): what a restart needs to go on with one, kept in the store's lease."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.store.manifest import read_manifest
from sentence_beam.transforms.store.runs.result import read_result


@dataclass(frozen=True)
class Naming:
    """The name of a run ("" if it has none), and what a restart under that name takes over.

    `options` are those given to the run as texts, by flag, and its space: a restart must have the
    same. `tables` are the versions of its input tables, which a restart reads again.
    """

    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)


UNNAMED = Naming()


def check_options(naming: Naming, begun: Mapping[str, str], run: str) -> None:
    """Raise OptionError naming the options in which a restart differs from the run it begins."""
    names = sorted({*naming.options, *begun})
    differing = [name for name in names if naming.options.get(name) != begun.get(name)]
    if differing:
        raise OptionError(
            f"--job {naming.name}: its unfinished run {run} was begun with other values of"
            f" {', '.join(differing)}; give the same, or another --job when that run has ended"
        )


def has_ended(root: str, run: str) -> bool:
    """Return whether a run has a result or is the current snapshot's."""
    if read_result(root, run) is not None:
        return True
    current = read_manifest(root)
    return current is not None and current.run == run
