"""Embedding spaces: everything that a vector depends on, and its hash. Standard library only."""

from sentence_beam.transforms.space.dtypes import DTYPES, FLOAT32_ONLY, native_dtype, resolve_dtype
from sentence_beam.transforms.space.hashing import (
    canonical_json,
    pieces_hashes,
    row_hash,
    row_hashes,
    sha256_file,
    sha256_text,
)
from sentence_beam.transforms.space.identity import Space, resolve_space
from sentence_beam.transforms.space.model_files import DEFAULT_MODEL, ModelFiles, resolve_model
from sentence_beam.transforms.space.pooler_spec import AUTO, PoolerPart, PoolerSpec, parse_pooler
from sentence_beam.transforms.space.recipe import Machine, Recipe

__all__ = [
    "AUTO",
    "DEFAULT_MODEL",
    "DTYPES",
    "FLOAT32_ONLY",
    "Machine",
    "ModelFiles",
    "PoolerPart",
    "PoolerSpec",
    "Recipe",
    "Space",
    "canonical_json",
    "native_dtype",
    "parse_pooler",
    "pieces_hashes",
    "resolve_dtype",
    "resolve_model",
    "resolve_space",
    "row_hash",
    "row_hashes",
    "sha256_file",
    "sha256_text",
]
