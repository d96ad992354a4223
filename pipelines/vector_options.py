"""Options that say which vectors a text gets."""

import argparse

from pipelines import options


def add_vector_options(group: argparse._ArgumentGroup) -> None:
    """What decides the vectors; None stands for "not given"."""
    group.add_argument(
        "--model",
        type=options.filled,
        metavar="MODEL",
        help="minilm, a local directory, or a Hugging Face id (default: minilm)",
    )
    group.add_argument("--revision", metavar="R", help="revision of a Hugging Face id")
    group.add_argument("--pooler", metavar="SPEC", help="how token states become a vector (default: the model's own)")
    prompt = group.add_mutually_exclusive_group()
    prompt.add_argument("--prompt", metavar="STR", help="text put before every row")
    prompt.add_argument("--prompt-name", metavar="NAME", help="one of the model's named prompts")
    group.add_argument(
        "--max-tokens", type=options.positive, metavar="N", help="cut longer texts (default: the model's limit)"
    )
    group.add_argument(
        "--normalize", action=argparse.BooleanOptionalAction, help="vectors of length 1 (default: as the model says)"
    )
    group.add_argument(
        "--calibration", metavar="PATH", help="folder that fit made, applied to the vectors ('' for none)"
    )
    group.add_argument("--truncate-dim", type=options.positive, metavar="D", help="keep the first D components")
    group.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16", "float16"],
        help="type of the forward pass (default: the store's, else what the machine computes natively)",
    )
