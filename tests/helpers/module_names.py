"""Patterns of names of modules: any name, and names that begin at a folder of the checkout."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("pipelines", "transforms")


def _below(part: str) -> str:
    children = {path.stem for path in (ROOT / part).glob("[!_]*")}
    return rf"{part}\\?\.(?:{'|'.join(sorted(children))})\b"


_BELOW = "|".join(map(_below, PARTS))
# a layer or a command, with or without the package in front
MODULE = re.compile(rf"sentence_beam\.(?:{'|'.join(PARTS)})\b|\b(?:{_BELOW})")
# the same without the package, as in strings, patterns and settings; and imports of a folder
OF_A_FOLDER = re.compile(
    rf"(?<![\w.\\])(?:{_BELOW})(?!\()"
    rf"|(?:\bfrom|(?<!_beam )\bimport|-m)[\s'\",]+(?:{'|'.join(PARTS)})\b(?!/)"
)
