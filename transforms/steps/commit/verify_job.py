"""A check of a snapshot by the workers of a pipeline: its parts, and the file with the lines."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from sentence_beam.transforms import storage
from sentence_beam.transforms.base.errors import SentenceBeamError, refuse_damage
from sentence_beam.transforms.base.json_entries import read_dataclass
from sentence_beam.transforms.store import verification
from sentence_beam.transforms.store.manifest import Manifest, read_shared
from sentence_beam.transforms.store.verification import Check, Extent, Finding, Findings


@dataclass(frozen=True)
class VerifyJob:
    """The check of the snapshot of `run`.

    It reads the part `sample` of its shards. `digest` is the snapshot's. The lines go to the file
    `output`.
    """

    root: str
    run: str
    digest: str
    output: str
    sample: float = 1.0


class Verification:
    """A job in a worker, with the snapshot read once."""

    def __init__(self, job: VerifyJob):
        self._job = job

    @cached_property
    def _manifest(self) -> Manifest:
        manifest = read_shared(self._job.root, self._job.run, self._job.digest)
        assert manifest is not None, "a run that is named is read or raises"
        return manifest

    @cached_property
    def _extent(self) -> Extent:
        return Extent(self._job.sample)

    def checks(self) -> Iterator[Check]:
        """Yield the parts, or one that says that the snapshot cannot be read."""
        try:
            yield from verification.checks(self._manifest, self._extent)
        except SentenceBeamError as error:
            yield Check(verification.UNREADABLE, error.line)

    def finding(self, check: Check) -> Finding:
        """Return the finding of a part."""
        if check.what == verification.UNREADABLE:
            return Finding(check.place, (check.about,))
        try:
            return verification.finding(self._manifest, self._extent, check)
        except SentenceBeamError as error:
            return Finding(check.place, (error.line,), covered=None)

    def conclude(self, findings: Findings) -> None:
        """Write the lines of all parts."""
        try:
            lines = list(verification.conclude(self._manifest, self._extent, findings))
        except SentenceBeamError:
            lines = list(verification.lines_of(findings))
        storage.overwrite(self._job.output, json.dumps(lines).encode())


def read_lines(output: str) -> list[str] | None:
    """Return the lines that a check wrote, and remove the file; None without a file.

    Raises SentenceBeamError if the file is damaged.
    """
    place = storage.storage_of(output)
    stored = place.read_versioned(output)
    place.delete(output)
    if stored is None:
        return None
    with refuse_damage(f"{output} is not what the job wrote", "run verify again"):
        return list(read_dataclass(_Lines, {"lines": json.loads(stored[0])}).lines)


@dataclass(frozen=True)
class _Lines:
    """The content of the file with the lines."""

    lines: tuple[str, ...]
