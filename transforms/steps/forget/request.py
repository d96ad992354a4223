"""The request to erase rows, as a person made it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ForgetRequest:
    """The rows to erase: those with some of the `ids`, or those that match `where`.

    `missing_ok` allows ids that the store does not have. More than the share `max_deletes` of the
    rows are not erased.
    """

    ids: tuple[str, ...] = ()
    where: str | None = None
    missing_ok: bool = False
    max_deletes: float = 0.5
    reason: str = ""
