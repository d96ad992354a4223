"""The request to erase rows, as a person made it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ForgetRequest:
    """The rows to erase: those with some of the `ids`, or those that match `where`.

    `documents` erases whole documents of which a piece matches. `missing_ok` allows ids that the
    store does not have. More than the share `max_deletes` of the rows are not erased.
    `drop_history` removes earlier snapshots. `key` is the key of the hashes if it is kept
    elsewhere.
    """

    ids: tuple[str, ...] = ()
    where: str | None = None
    documents: bool = False
    missing_ok: bool = False
    max_deletes: float = 0.5
    drop_history: bool = False
    reason: str = ""
    key: bytes | None = None
