"""What every worker of a run is told: plain values that pickle small."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from transforms.errors import SentenceBeamError
from transforms.store.commit import Snapshot
from transforms.store.corpus import Columns
from transforms.store.corpus.buckets import Buckets

PROBLEMS = "problems"
CARRIED = "carried"
SPANS_PER_ELEMENT = 8
ELEMENTS_WANTED = 64
SPANS_FOR_ONE_PROCESS = 64


@dataclass(frozen=True)
class EmbedJob:
    """One run of `embed`.

    `encoder` are keyword arguments for `Encoder.load`; `model` is loaded by workers and may differ from the
    submitting machine's path. `carry` says that unchanged files are taken over unread from the last snapshot, `reuse`
    that texts which it holds take their vectors from it. `calibration` is the folder of the one to apply, `max_drift`
    the cosine distance by which the canary's vectors may have moved. `buckets` are the last snapshot's where they are
    to be kept, `text_limit` the bytes of text that may be grouped in memory. `retried` says that an engine does work
    again whose worker died.
    """

    snapshot: Snapshot
    columns: Columns
    model: str
    encoder: dict[str, Any] = field(default_factory=dict)
    input_format: str = "auto"
    limit: int | None = None
    carry: bool = False
    reuse: bool = False
    calibration: str | None = None
    max_drift: float = 0.0
    buckets: Buckets | None = None
    text_limit: int | None = None
    retried: bool = False

    @property
    def by_content(self) -> bool:
        """Whether units are buckets of the hash space, not parts of files."""
        return self.snapshot.partition == "content"

    @property
    def root(self) -> str:
        """The store."""
        return self.snapshot.root

    @property
    def run(self) -> str:
        """The run's id."""
        return self.snapshot.run


class Merge(beam.PTransform):
    """Collections of a few descriptions each -> one.

    Where one of them is made of another, Flink's translation refuses a bare Flatten: some of these must then be
    materialised, and it takes that only if all are. The runner in this process takes it, and starts in half the time.
    """

    def expand(self, parts: Sequence[beam.PCollection]) -> beam.PCollection:
        if isinstance(parts[0].pipeline.runner, FnApiRunner):
            return parts | "Flatten" >> beam.Flatten()
        apart = [part | f"Apart{i}" >> beam.Reshuffle() for i, part in enumerate(parts)]
        return apart | "Flatten" >> beam.Flatten()


def check_worker(job: EmbedJob) -> None:
    """Raises SentenceBeamError where this worker has another Beam than the machine that submitted the job."""
    wanted, found = job.snapshot.versions.get("apache-beam"), beam.__version__
    if wanted not in (None, found):
        raise SentenceBeamError(
            f"a worker has apache-beam {found}, the machine that submitted the job {wanted}; "
            "install one version on both (workers: in their image or environment)"
        )


@dataclass(frozen=True)
class IndexRequest:
    """What index to build: `auto`, `compact` or a faiss factory string; `ip` or `l2`; the recall@10 to tune for.

    `merge` makes one segment of all rows.
    """

    index: str = "auto"
    metric: str = "ip"
    target_recall: float = 0.95
    merge: bool = False


def is_one_process(pipeline: beam.Pipeline) -> bool:
    """Whether a process works off all elements, one after the other."""
    direct = pipeline.options.view_as(DirectOptions)
    return isinstance(pipeline.runner, FnApiRunner) and direct.direct_num_workers == 1


def spans_per_element(spans: int, one_process: bool) -> int:
    """How many spans one element lists: enough to overlap reading, encoding and writing, few enough to spread."""
    if one_process:
        return SPANS_FOR_ONE_PROCESS
    return max(1, min(SPANS_PER_ELEMENT, spans // ELEMENTS_WANTED))
