"""What a store has to hold, worked out from options and input rows alone: rows, texts, spaces and
vectors.

Vectors are those of `Encoder.encode`, once a text; nothing of the planning of runs is asked.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from helpers.corpora import sentences
from helpers.pair_files import InputRow
from helpers.tiny_models import save_tiny_model

from sentence_beam.transforms.calibration import Calibration, parse_calibration
from sentence_beam.transforms.calibration.methods import fit_affine
from sentence_beam.transforms.calibration.moments import Moments
from sentence_beam.transforms.calibration.moved import FittedMoments
from sentence_beam.transforms.corpus.chunks.cut import Cutter
from sentence_beam.transforms.encoder import Encoder
from sentence_beam.transforms.space import Recipe, Space, parse_pooler
from sentence_beam.transforms.space.chunks_spec import ChunksSpec

Options = Mapping[str, str]
POOLED_BY = ("model", "pooler", "prompt", "max-tokens", "dtype")


class HeldRow(NamedTuple):
    """A row of a file as a store took it, with the id that it has where no column has one."""

    made_id: str
    row: InputRow


@dataclass(frozen=True)
class State:
    """What a store holds: its options by name, the rows of its files, and whether these were
    limited.
    """

    options: Options
    files: Mapping[str, tuple[HeldRow, ...]]
    limited: bool = False

    @property
    def read(self) -> list[HeldRow]:
        """All rows that were read."""
        return [row for name in sorted(self.files) for row in self.files[name]]


class Expected(NamedTuple):
    """A stored row: all but its vector."""

    id: str
    piece: int
    kept: tuple[tuple[str, str], ...]


def as_kept(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Kept values by name, with their types."""
    return tuple(sorted((name, repr(value)) for name, value in values.items()))


@dataclass
class Rows:
    """All rows of a snapshot, and what was rejected; `pooled` has the vector of each row's key."""

    counts: Counter[Expected] = field(default_factory=Counter)
    pooled: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    written: int = 0
    rejected: int = 0


class Models:
    """The models of a campaign, loaded once for each way of pooling, and the vectors of all texts
    so far.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._vectors: dict[tuple[str, ...], dict[str, np.ndarray]] = {}

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The folders of the models, by name."""
        return {name: save_tiny_model(name, self.folder / name) for name in ("bert", "distilbert")}

    @lru_cache(64)  # noqa: B019 (one of these lives as long as the tests)
    def encoder(self, *pooled_by: str) -> Encoder:
        """The encoder of pooled vectors."""
        model, pooler, prompt, most, dtype = pooled_by
        return Encoder.load(
            self.paths[model],
            pooler=pooler,
            prompt=prompt,
            max_tokens=int(most),
            dtype=dtype,
            normalize=False,
        )

    def recipe(self, options: Options) -> Recipe:
        """The recipe that options say, without a calibration."""
        return Recipe(
            model=str(self.paths[options["model"]]),
            pooler=parse_pooler(options["pooler"]),
            prompt=options["prompt"],
            max_tokens=int(options["max-tokens"]),
            dtype=options["dtype"],
            normalize=options["normalize"] == "yes",
            truncate_dim=_truncated(options),
            precision=options["precision"],
            chunks=ChunksSpec.parse(options["chunks"]),
        )

    def space(self, options: Options) -> Space:
        """The space of these options."""
        fitted = self.calibration(options)
        given = (fitted.digest, fitted.dim) if fitted else ()
        return self._space(self.recipe(options), *given)

    @lru_cache(1024)  # noqa: B019
    def _space(self, recipe: Recipe, *calibrated: Any) -> Space:
        return recipe.space(recipe.files(), *calibrated)

    def calibration(self, options: Options) -> Calibration | None:
        """The calibration of this name, fitted on vectors pooled as these options say."""
        if options["calibration"] == "none":
            return None
        whole = "late" in options["chunks"] or "mean" in options["chunks"]
        return self._fitted(
            options["calibration"],
            options["chunks"] if whole else "none",
            *(options[name] for name in POOLED_BY),
        )

    @lru_cache(256)  # noqa: B019
    def _fitted(self, method: str, chunks: str, *pooled_by: str) -> Calibration:
        named = dict(zip(POOLED_BY, pooled_by, strict=True))
        recipe = self.recipe(
            {
                **named,
                "normalize": "yes",
                "truncate-dim": "16",
                "precision": "float32",
                "chunks": chunks,
            }
        )
        rows, spec = (
            np.array(list(self._encoded(pooled_by, sentences(150)).values())),
            parse_calibration(method),
        )
        moments = Moments.from_rows(rows)
        fitted = fit_affine(spec, moments)
        on = {"store": "", "run": "", "space": self._space(recipe).to_json(), "n": len(rows)}
        on |= {"moments": FittedMoments.from_moments(moments).to_json()}
        width = rows.shape[1]
        kept = len(fitted.tensors["kernel"][0]) if "kernel" in fitted.tensors else width
        return Calibration.make(spec, fitted.tensors, (width, kept), on, {})

    def calibration_folder(self, options: Options) -> str:
        """The folder of a calibration; `none` for none."""
        fitted = self.calibration(options)
        if fitted is None:
            return "none"
        folder = self.folder / fitted.digest[:16]
        folder.mkdir(exist_ok=True)
        for name, data in fitted.to_files().items():
            (folder / name).write_bytes(data)
        return str(folder)

    def _encoded(self, pooled_by: tuple[str, ...], texts: list[str]) -> dict[str, np.ndarray]:
        """The pooled vectors of texts, each encoded once."""
        known = self._vectors.setdefault(pooled_by, {})
        new = list(dict.fromkeys(text for text in texts if text not in known))
        known |= dict(zip(new, self.encoder(*pooled_by).encode(new), strict=True)) if new else {}
        return {text: known[text] for text in texts}

    def final(self, pooled: np.ndarray, options: Options) -> np.ndarray:
        """Final vectors of pooled ones, as floats: calibrated, truncated, normalised."""
        fitted = self.calibration(options)
        vectors = pooled if fitted is None else fitted.apply(np.ascontiguousarray(pooled))
        vectors = vectors[:, : _truncated(options)]
        if options["normalize"] == "yes":
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def rows(self, state: State) -> Rows:
        """What the store holds of a state."""
        found, taken = Rows(), []
        for held in state.read:
            text, row_id = (
                _text(held.row, state.options["text"]),
                _id(held, state.options["id-column"]),
            )
            kept = _kept(held.row, state.options["keep-columns"])
            if row_id is None or text is None or not text.strip() or kept is None:
                found.rejected += 1
            else:
                found.written += 1
                taken.append((row_id, text, kept, held.row))
        for row_id, text, kept, row in taken:
            self._add(found, state.options, row_id, text, dict(kept), row)
        return found

    def _add(
        self,
        found: Rows,
        options: Options,
        row_id: str,
        text: str,
        kept: dict[str, Any],
        row: InputRow,
    ) -> None:
        pieces = self._pieces(options, text, row)
        for number, (own, pooled) in enumerate(pieces):
            values = dict(kept)
            if options["text"] == "text" and "text" in values:
                values["text"] = own
            elif options["keep-text"] == "yes":
                values["text"] = own
            found.counts[Expected(row_id, number, as_kept(values))] += 1
            found.pooled[row_id, number] = pooled

    def _pieces(self, options: Options, text: str, row: InputRow) -> list[tuple[str, np.ndarray]]:
        """Each piece of a document with its pooled vector; of a row that is not cut, the row."""
        pooled_by, spec = (
            tuple(options[name] for name in POOLED_BY),
            ChunksSpec.parse(options["chunks"]),
        )
        if not spec.cuts:
            return [(text, self._encoded(pooled_by, [text])[text])]
        encoder, prefix = (
            self.encoder(*pooled_by),
            options["chunk-prefix"].replace("{title}", row.title or ""),
        )
        cutter = Cutter(spec, encoder.tokenizer, encoder.room, options["prompt"])
        (pieces,) = cutter.cut([text], lambda _, __: prefix)
        owns = [text[start:end] for start, end in pieces.spans]
        if spec.kind == "late":
            windows = encoder.windows([text], [pieces.spans], spec.window, spec.overlap)
            return list(zip(owns, encoder.embed_pieces(windows).vectors, strict=True))
        by_text = self._encoded(pooled_by, [prefix + own for own in owns])
        vectors = [by_text[prefix + own] for own in owns]
        if spec.combine != "mean":
            return list(zip(owns, vectors, strict=True))
        mean = np.average(np.array(vectors), axis=0, weights=np.maximum(pieces.tokens, 1))
        return [(text, mean.astype(np.float32))]


def _truncated(options: Options) -> int | None:
    return None if options["truncate-dim"] == "all" else int(options["truncate-dim"])


def _text(row: InputRow, asked: str) -> str | None:
    if "{" in asked:
        return asked.replace("{title}", row.title or "").replace("{text}", row.text or "")
    return getattr(row, asked)


def _id(held: HeldRow, column: str) -> str | None:
    return getattr(held.row, column) if column else held.made_id


def _kept(row: InputRow, asked: str) -> dict[str, Any] | None:
    """The kept values of a row; None where one cannot be read as its type."""
    kept: dict[str, Any] = {}
    for name, _, kind in (column.partition(":") for column in asked.split(",") if column):
        value = getattr(row, name)
        try:
            kept[name] = value if kind in ("", "str") else {"int": int, "float": float}[kind](value)
        except ValueError:
            return None
    return kept
