"""The options of `embed` and of `plan`."""

import argparse

from sentence_beam.pipelines.common import options, specs
from sentence_beam.transforms.steps.options.embed import EmbedOptions, PlanOptions

KINDS = {"embed": EmbedOptions, "plan": PlanOptions}
WHAT = {
    "embed": "Embed a collection of sentences into a store, or bring the store up to date.",
    "plan": "Estimate the work and time of embed with the same options; write nothing.",
}
EXAMPLES = {
    "embed": (
        "sentence-beam embed reviews/",
        "sentence-beam embed 'corpus/*.parquet' --store corpus --index auto",
    ),
    "plan": (
        "sentence-beam plan reviews/",
        "sentence-beam plan 'corpus/*.parquet' --store corpus --pooler mean",
    ),
}


def parser(name: str = "embed") -> argparse.ArgumentParser:
    """Return the parser of `embed` or `plan`."""
    words = f"{specs.describe_poolers()}\n\n{specs.describe_chunks()}"
    return options.command(name, WHAT[name], *EXAMPLES[name], words=words, kind=KINDS[name])
