"""CountChanges and CountDuplicateIds: what a run changed; a few bytes a row of changed units travel."""

import apache_beam as beam

from transforms.beam.graph import Merge, Together, flat_map
from transforms.steps.changes import (
    DuplicateIds,
    UnknownChanges,
    count_bucket,
    differing_shards,
    read_changed,
    shards_to_count,
)
from transforms.store.changes import Changes, repeated
from transforms.store.commit import Run
from transforms.store.id_hashes import id_hashes

KNOWN = "known"


class CountChanges(beam.PTransform):
    """Everything known of a run, units and problems among it -> Changes to sum up, or UnknownChanges.

    16 bytes a row of changed units travel. Where the run is to fail nothing is read.
    """

    def __init__(self, run: Run):
        super().__init__()
        self._run = run

    def expand(self, known: beam.PCollection) -> beam.PCollection:
        outputs = {Changes: KNOWN, UnknownChanges: KNOWN}
        chosen = (
            known
            | "Together" >> Together()
            | "Choose" >> flat_map(differing_shards, self._run, outputs=outputs, main="shards")
        )
        counted = (
            chosen.shards
            | "Spread" >> beam.Reshuffle()
            | "Hash" >> beam.FlatMap(read_changed)
            | "Buckets" >> beam.GroupByKey()
            | "Count" >> beam.Map(count_bucket)
        )
        return (chosen[KNOWN], counted) | "Changes" >> beam.Flatten()


class CountDuplicateIds(beam.PTransform):
    """Units -> DuplicateIds to sum up; eight bytes a row travel, packed by bucket.

    Nothing is read where the last snapshot has the same rows; else a shard's ids are read once, and their hashes kept.
    """

    def __init__(self, run: Run):
        super().__init__()
        self._run = run

    def expand(self, units: beam.PCollection) -> beam.PCollection:
        chosen = (
            units
            | "Together" >> Together()
            | "Choose" >> flat_map(shards_to_count, self._run, outputs={DuplicateIds: KNOWN}, main="shards")
        )
        counted = (
            chosen.shards
            | "Spread" >> beam.Reshuffle()
            | "Hash" >> beam.FlatMapTuple(id_hashes)
            | "Buckets" >> beam.GroupByKey()
            | "Count" >> beam.Map(lambda bucket: DuplicateIds(repeated(bucket[1])))
        )
        return (chosen[KNOWN], counted) | "Counts" >> Merge()
