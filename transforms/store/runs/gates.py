"""The gates of a run: how much it may reject, delete and so on before it commits nothing."""

from dataclasses import dataclass

from sentence_beam.transforms.store.entries import RememberedOptions


@dataclass(frozen=True)
class UsedGates:
    """The values of the gates in one run; the store remembers others for the next runs.

    `max_rejects` is a fraction of the rows read, `max_deletes` of the last snapshot's rows,
    `max_unknown` of the embedded tokens; `max_drift` is the cosine distance that the canary's
    vectors may have moved. `max_answer_change` is a fraction of the answers to watched
    queries; 1 allows any.
    """

    max_rejects: float = RememberedOptions.max_rejects
    max_deletes: float = 1.0
    max_unknown: float = 1.0
    max_drift: float = 0.0
    max_answer_change: float = 1.0
