"""Push a store into a database, so that it holds the same rows."""

from sentence_beam.transforms.push.dispatch import open_target, redact
from sentence_beam.transforms.push.snapshot import Pushed, PushRequest, push

__all__ = ["PushRequest", "Pushed", "open_target", "push", "redact"]
