"""CountRows: what a run changed, and ids that occur twice; a few bytes a row of changed units travel."""

import apache_beam as beam
from apache_beam.typehints import typehints

from transforms.beam.graph import flat_map, keeping_lease
from transforms.steps.changes import DuplicateIds, UnknownChanges, count_bucket, hashes_of, rows_to_count
from transforms.store.changes import Changes
from transforms.store.commit import Run
from transforms.store.records import Problem
from transforms.store.settled import Settled

KNOWN = "known"
Hashes = typehints.Tuple[typehints.Tuple[str, int], typehints.Any]
OUTPUTS = dict.fromkeys((Settled, Problem, Changes, UnknownChanges, DuplicateIds), KNOWN)


class CountRows(beam.PTransform):
    """What `Settle` gives -> the same; with Changes to sum up, or UnknownChanges, and DuplicateIds where `ids` says so.

    16 bytes a row of changed units travel, and eight bytes a row for the ids, packed by bucket. Of ids nothing is read
    where the last snapshot has the same rows; else a shard's are read once, and their hashes kept. Where the run is to
    fail nothing is read. One step chooses for both, and one collection comes of it: an engine holds buffers for each.
    """

    def __init__(self, run: Run, ids: bool):
        super().__init__()
        self._run, self._ids = run, ids

    def expand(self, settled: beam.PCollection) -> beam.PCollection:
        chosen = settled | "Choose" >> flat_map(
            keeping_lease, self._run.key, rows_to_count, self._run, self._ids, outputs=OUTPUTS, main="shards"
        )
        counted = (
            chosen.shards
            | "Spread" >> beam.Reshuffle()
            | "Hash" >> beam.FlatMap(keeping_lease, self._run.key, hashes_of).with_output_types(Hashes)
            | "Buckets" >> beam.GroupByKey()
            | "Count" >> beam.Map(keeping_lease, self._run.key, count_bucket)
        )
        return (chosen[KNOWN], counted) | "Counts" >> beam.Flatten()
