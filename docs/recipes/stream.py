"""Messages of a queue -> rows with vectors in PostgreSQL, as stream.md says."""

import argparse
import json
import logging
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import psycopg
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse, RebaseMode

from sentence_beam import EmbedRows

TABLE = (
    "CREATE TABLE IF NOT EXISTS messages (id text PRIMARY KEY, text text, embedding vector({dim}))"
)
UPSERT = (
    "INSERT INTO messages VALUES (%s, %s, %s::real[]::vector) "
    "ON CONFLICT (id) DO UPDATE SET text = EXCLUDED.text, embedding = EXCLUDED.embedding"
)
TRIED = [
    b'{"id": "a", "text": "the cat sat on the mat"}',
    b"no JSON",
    b'{"id": "b", "text": "rates were raised"}',
]
TRIED += [b'{"id": "a", "text": "the dog sat on the mat"}', b'{"id": "c", "text": ""}']


def row(message: bytes) -> dict[str, Any]:
    """The row of a message; one that is no JSON with id and text is a row without text, which is
    rejected.
    """
    try:
        told = json.loads(message)
        return {"id": str(told["id"]), "text": told["text"]}
    except (ValueError, TypeError, KeyError):
        return {"id": repr(message[:80]), "text": None}


class Upsert(beam.DoFn):
    """Lists of rows -> PostgreSQL. A message may come twice: its row is written over."""

    def __init__(self, url: str):
        self._url = url

    def setup(self) -> None:
        self._connection = psycopg.connect(self._url)

    def process(self, rows: list[dict[str, Any]]) -> None:
        values = {row["id"]: (row["id"], row["text"], row["embedding"].tolist()) for row in rows}
        with self._connection.cursor() as cursor:
            # in one order: no deadlocks
            cursor.executemany(UPSERT, [values[name] for name in sorted(values)])
        self._connection.commit()

    def teardown(self) -> None:
        self._connection.close()


def batches() -> beam.BatchElements:
    """Rows of half a second, together: some engines hand them on one by one."""
    return beam.BatchElements(min_batch_size=1, max_batch_size=256, max_batch_duration_secs=0.5)


def main(argv: Sequence[str] | None = None) -> None:
    """Run until the queue ends, which is never; without a queue, a few messages are made up."""
    p = argparse.ArgumentParser()
    p.add_argument("--to", required=True, help="postgresql://USER@HOST/DATABASE, with pgvector")
    p.add_argument("--topic", help="projects/PROJECT/topics/TOPIC of Pub/Sub")
    p.add_argument("--model", default="minilm")
    args, flags = p.parse_known_args(argv)
    embedded = EmbedRows(args.model, dtype="float32")
    with psycopg.connect(args.to) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(TABLE.format(dim=embedded.space.dim))
    queue = PeriodicImpulse(0, len(TRIED), 1, data=TRIED, rebase=RebaseMode.REBASE_ALL)
    if args.topic:
        queue = beam.io.ReadFromPubSub(topic=args.topic)
    with beam.Pipeline(
        options=PipelineOptions(flags, streaming=True, save_main_session=True)
    ) as pipeline:
        rows = pipeline | queue | beam.Map(row)
        found = rows | "Gather" >> batches() | beam.FlatMap(list) | embedded
        found.rows | "GatherAgain" >> batches() | beam.ParDo(Upsert(args.to))
        found.rejected | beam.Map(lambda row: logging.warning("%s: %s", row["id"], row["reason"]))


if __name__ == "__main__":
    main()
