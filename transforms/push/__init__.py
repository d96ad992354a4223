"""A store pushed into a database: what it needs to hold the same rows, and the databases."""

from transforms.push.dispatch import open_target, shown
from transforms.push.snapshot import Pushed, PushRequest, push

__all__ = ["PushRequest", "Pushed", "open_target", "push", "shown"]
