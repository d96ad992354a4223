"""Test texts that a fitted calibration has seen."""

import pyarrow as pa
import pyarrow.compute as pc

from sentence_beam.transforms.base.errors import SentenceBeamError
from sentence_beam.transforms.calibration import Calibration
from sentence_beam.transforms.evaluation.task import Task, quoted
from sentence_beam.transforms.space import row_hashes
from sentence_beam.transforms.store import open_store


def find_texts_of_fit(path: str, calibration: Calibration, tasks: list[Task]) -> list[str]:
    """Return a note for each task that shares texts with the store of a calibration's fit.

    Returns no notes if that store, or that snapshot of it, no longer exists.
    """
    fitted = calibration.info["fitted_on"]
    try:
        hashes = (
            open_store(str(fitted["store"]), fitted["run"]).dataset().to_table(columns=["row_hash"])
        )
    except (SentenceBeamError, OSError, KeyError, pa.ArrowException):
        return []
    fit_hashes = hashes.column("row_hash").combine_chunks()
    notes = []
    for task in tasks:
        texts = list(dict.fromkeys([*task.texts, *task.queries]))
        seen = pc.is_in(pa.array(row_hashes(texts), pa.binary(16)), fit_hashes).to_pylist()
        both = [text for text, is_seen in zip(texts, seen, strict=True) if is_seen]
        if both:
            notes.append(
                f"{task.name}: {path} was fitted on {len(both)} of its {len(texts)} texts:"
                f" {quoted(both)}"
            )
    return notes
