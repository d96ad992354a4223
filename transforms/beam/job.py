"""What the steps of a run share: names of outputs, checks and sizes that need Beam."""

from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from transforms.errors import SentenceBeamError
from transforms.steps.job import EmbedJob

PROBLEMS = "problems"
CARRIED = "carried"
SPANS_PER_ELEMENT = 8
ELEMENTS_WANTED = 64
SPANS_FOR_ONE_PROCESS = 64


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
    wanted, found = job.run.versions.get("apache-beam"), beam.__version__
    if wanted not in (None, found):
        raise SentenceBeamError(
            f"a worker has apache-beam {found}, the machine that submitted the job {wanted}; "
            "install one version on both (workers: in their image or environment)"
        )


def is_one_process(pipeline: beam.Pipeline) -> bool:
    """Whether a process works off all elements, one after the other."""
    direct = pipeline.options.view_as(DirectOptions)
    return isinstance(pipeline.runner, FnApiRunner) and direct.direct_num_workers == 1


def spans_per_element(spans: int, one_process: bool) -> int:
    """How many spans one element lists: enough to overlap reading, encoding and writing, few enough to spread."""
    if one_process:
        return SPANS_FOR_ONE_PROCESS
    return max(1, min(SPANS_PER_ELEMENT, spans // ELEMENTS_WANTED))
