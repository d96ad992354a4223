"""The options of the commands: a dataclass for each, whose fields declare the options."""

from sentence_beam.transforms.steps.options.embed import EmbedOptions

__all__ = ["EmbedOptions"]
