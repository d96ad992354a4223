"""Push a store into a database, so that it holds the same rows."""

from sentence_beam.transforms.push.push_snapshot import Pushed, PushRequest, push
from sentence_beam.transforms.push.push_targets import open_target, redact

__all__ = ["PushRequest", "Pushed", "open_target", "push", "redact"]
