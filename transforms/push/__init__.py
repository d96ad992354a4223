"""A store pushed into a database: what it needs to hold the same rows, and the databases."""

from transforms.push.snapshot import Pushed, push
from transforms.push.target import open_target

__all__ = ["Pushed", "open_target", "push"]
