"""The rows to erase of a store, with everything that decides how."""

from dataclasses import dataclass

from sentence_beam.transforms.steps.forget.request import ForgetRequest
from sentence_beam.transforms.steps.forget.select import ErasedRows
from sentence_beam.transforms.store.forgetting.hashes import ForgottenRows
from sentence_beam.transforms.store.manifest import Manifest


@dataclass(frozen=True)
class Erasure:
    """The rows to erase of a store and where they are; nothing is written yet.

    `known` are asked ids that were erased before.
    """

    current: Manifest
    snapshots: list[Manifest]
    dropped: tuple[str, ...]
    selection: ErasedRows
    rows: ForgottenRows
    key: bytes
    known: set[str]
    request: ForgetRequest

    @property
    def is_empty(self) -> bool:
        """Whether the store has nothing of the rows any more."""
        return not self.new_ids and not self.sweeps

    @property
    def new_ids(self) -> set[str]:
        """The ids that were not erased before, or that the store has again."""
        found = self.selection.texts
        return {name for name in found if found[name].rows or name not in self.known}

    @property
    def sweeps(self) -> bool:
        """Whether rows are asked for whose ids no kept snapshot has.

        Their codes may be among the deleted rows of segments.
        """
        return any(not self.selection.texts[name].rows for name in self.new_ids)
