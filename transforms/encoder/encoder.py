"""The encoder: a loaded model with its pooler and calibration, from texts to final vectors."""

import logging
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from sentence_beam.transforms.base.errors import OptionError, UnfitModelError
from sentence_beam.transforms.base.values import StrPath
from sentence_beam.transforms.calibration import Calibration, check_space, load_calibration
from sentence_beam.transforms.encoder.batches import Batch, UnitBatches, plan_alike, plan_batches
from sentence_beam.transforms.encoder.devices import (
    Passing,
    PooledUnit,
    name_devices,
    pool_unit,
    refuse_unseen_gpu,
    resolve_devices,
)
from sentence_beam.transforms.encoder.finish_vectors import Embedded, average_pieces, finish
from sentence_beam.transforms.encoder.lanes import Lanes, Progress
from sentence_beam.transforms.encoder.late import PiecesUnit, plan_pieces
from sentence_beam.transforms.encoder.load import load_tables
from sentence_beam.transforms.encoder.load_replica import load_replicas
from sentence_beam.transforms.encoder.probe import BatchSharing
from sentence_beam.transforms.encoder.replica import (
    spread,
    tokens_per_alike_batch,
    tokens_per_batch,
)
from sentence_beam.transforms.encoder.routes import Routes
from sentence_beam.transforms.encoder.tokenize import KnownTokens, TextTokenizer, Tokenized
from sentence_beam.transforms.encoder.windows import Windows, make_windows
from sentence_beam.transforms.pooling.token_statistics import TokenStatistics
from sentence_beam.transforms.space.dtypes import resolve_dtype
from sentence_beam.transforms.space.identity import Space
from sentence_beam.transforms.space.int8_model import INT8, MISSING, Int8Model, restrict_to_cpu
from sentence_beam.transforms.space.model_files import DEFAULT_MODEL, ModelFiles
from sentence_beam.transforms.space.recipe import Machine, Recipe
from sentence_beam.transforms.space.st_modules import DOCUMENT
from sentence_beam.transforms.space.trained_prompts import TrainedPrompts

_LOGGER = logging.getLogger(__name__)
# batches of windows whose token states are in memory together
WINDOW_BATCHES = {"cpu": 16, "cuda": 4}


class Encoder:
    """A loaded model with its pooler and calibration; threads may share it.

    The steps of `encode` are methods of their own, which threads may run in parallel for successive
    lists of texts: `tokenize`, `plan`, `start` (which waits for nothing) and `finish`.
    `replicas` are the copies of the model, one a device.
    """

    def __init__(
        self,
        files: ModelFiles,
        space: Space,
        devices: Sequence[torch.device],
        machine: Machine,
        tables: Mapping[str, TokenStatistics] | None = None,
        calibration: Calibration | None = None,
        routes: "Routes[Encoder] | None" = None,
        int8: Int8Model | None = None,
    ) -> None:
        self.space = space
        self._routes = routes
        self._calibration = calibration
        self.device = devices[0]
        pooler = space.pooler["parts"][0]
        self.text_tokenizer = TextTokenizer(files, space.prompt, space.max_tokens, pooler)
        self.replicas = load_replicas(
            files, space, self.text_tokenizer, tables or {}, devices, int8
        )
        self.deterministic = machine.deterministic
        requested = machine.tokens_per_batch
        if machine.deterministic:
            first = self.replicas[0]
            self.tokens_per_batch = tokens_per_alike_batch(requested, first, files.family)
        else:
            self.tokens_per_batch = tokens_per_batch(requested, self.replicas)
        self._lanes = Lanes(self.replicas, machine.deterministic)
        self._spreads = self._lanes.on_cores and requested is None
        self._ended = 0.0  # time (perf_counter) at which the devices had finished their work

    @classmethod
    def load(
        cls,
        model: StrPath = DEFAULT_MODEL,
        *,
        pooler: str = "auto",
        dtype: str = "auto",
        device: str = "auto",
        max_tokens: int | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
        revision: str | None = None,
        tokens_per_batch: int | None = None,
        calibration: StrPath | Calibration | None = None,
        deterministic: bool = False,
        route: str = DOCUMENT,
    ) -> "Encoder":
        """Load an encoder: `minilm`, a local directory or a hub id.

        `pooler` auto: the model's own modules, mean if it has none. `dtype` auto: the device's
        native one, if the model can run in it. `normalize` None: as the modules have it for pooler
        auto, True for every other pooler. `prompt` None: the model's default one, as `encode` of
        sentence-transformers has it; rows of a store have the prompt named `document` if the model
        has it. `calibration`: a folder that `fit` made or a Calibration, "" for none even if an
        export has one; it must have been fitted on vectors of this space, except for the prompt,
        because queries may have their own. `deterministic`: a text's vector has the same bits
        beside any texts and with any number of threads. `route`: the default route of texts in a
        model that has several. A folder that `export` made has its own values for parameters that
        are not given. Warns if the model was trained with prompts and has none here. Raises
        `OptionError` for options or files that do not work.
        """
        fitted = None
        if isinstance(calibration, Calibration):
            fitted = calibration
            calibration = ""
        options: dict[str, Any] = {
            "model": model,
            "revision": revision,
            "pooler": pooler,
            "dtype": dtype,
            "prompt": prompt,
            "prompt_name": prompt_name,
            "max_tokens": max_tokens,
            "normalize": normalize,
            "truncate_dim": truncate_dim,
            "calibration": calibration,
        }
        machine = Machine(device, tokens_per_batch, deterministic)
        recipe = Recipe.from_options(options)
        if prompt is None and prompt_name is None:
            _warn_of_prompts(recipe.files(route).trained_prompts)
        return cls.from_recipe(recipe, machine, fitted, route)

    @classmethod
    def from_recipe(
        cls,
        recipe: Recipe,
        machine: Machine | None = None,
        calibration: Calibration | None = None,
        route: str = DOCUMENT,
        int8: Int8Model | None = None,
    ) -> "Encoder":
        """Load the encoder of a recipe, whose folder has the calibration if none is given.

        `int8` is the quantised model of a recipe of that dtype. Raises as `load` does.
        """
        machine = machine or Machine()
        files = recipe.files(route)
        exported = recipe.as_exported(files)
        machine = _check_machine(machine, exported.dtype, int8)
        devices = resolve_devices(machine.device)
        routes = Routes(files.modules, partial(cls.from_recipe, recipe, machine, calibration))
        fitted = calibration
        if exported.calibration and calibration is None:
            fitted = load_calibration(exported.calibration)
        tables = load_tables(exported.pooler)

        def make(dtype: str) -> "Encoder":
            digest, width = (fitted.digest, fitted.dim) if fitted else (None, None)
            space = replace(exported, dtype=dtype, precision="float32").space(files, digest, width)
            if int8 is not None:
                space = int8.applied(space)
            if fitted is not None:
                prompt = fitted.info["fitted_on"]["space"]["prompt"]
                check_space(fitted.info, replace(space, prompt=prompt), fitted.info["method"])
            return cls(files, space, devices, machine, tables, fitted, routes, int8)

        native = resolve_dtype(exported.dtype, devices[0].type, files.family)
        try:
            return make(native)
        except UnfitModelError:
            if exported.dtype != "auto" or native == "float32":
                raise
        return make("float32")

    @cached_property
    def device_names(self) -> str:
        """Names of the devices: `cpu`, `NVIDIA L4`, `2 x NVIDIA L4`."""
        return name_devices([replica.device for replica in self.replicas])

    @property
    def dim(self) -> int:
        """Width of the final vectors."""
        return self.space.dim

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer without truncation; it does not add the prompt."""
        return self.text_tokenizer.whole

    @property
    def room(self) -> int | None:
        """Most tokens of a text's own that are not cut off; None for any number."""
        return self.text_tokenizer.room

    @property
    def together(self) -> BatchSharing:
        """Which texts may share a batch."""
        return self.replicas[0].forward.together

    def encode(self, texts: str | Sequence[str], route: str | None = None) -> np.ndarray:
        """Embed texts: final vectors [n, dim] float32 in input order; [dim] for a single string.

        An empty text is its special tokens alone. `route`: `query`, `document` or another route of
        the model (sentence-transformers' Router); a model without routes treats all texts alike.
        Raises `OptionError` with the place of an item that is no text or has no token.
        """
        if self._routes is not None and route is not None:
            other = self._routes.other(route)
            if other is not None:
                return other.encode(texts)
        if isinstance(texts, str):
            return self.encode([texts])[0]
        tokenized = self.tokenize(texts)
        empty = np.flatnonzero(tokenized.lengths == 0)
        if len(empty):
            raise OptionError(
                f"text {empty[0]}: {texts[empty[0]]!r} has no token here; leave it out"
            )
        return self.embed(tokenized).vectors

    def tokenize(self, texts: Sequence[str]) -> Tokenized:
        """Tokenize texts into packed ids; may run in another thread beside `embed`.

        Raises `OptionError` with the place of an item that is no text.
        """
        return self.text_tokenizer(texts)

    def words(self, tokenized: Tokenized) -> KnownTokens:
        """Count the known and unknown tokens of tokenized texts."""
        return self.text_tokenizer.words(tokenized)

    def embed(self, tokenized: Tokenized, progress: Progress | None = None) -> Embedded:
        """Embed tokenized texts; return vectors, status and counts.

        `progress(rows, real tokens)` is called after every batch, by any thread.
        """
        return self.finish(self.start(self.plan(tokenized), progress))

    def plan(self, tokenized: Tokenized) -> UnitBatches:
        """Cut tokenized texts into batches."""
        return UnitBatches(len(tokenized.counts), list(self._plan(tokenized)))

    def start(
        self,
        unit: UnitBatches,
        progress: Progress | None = None,
        cancelled: threading.Event | None = None,
    ) -> Passing:
        """Queue the batches; devices take them after their earlier work.

        A single batch on a CPU runs at once, on all cores. Once `cancelled` is set, no further
        batch is begun, and `finish` raises CancelledError.
        """
        return self._lanes.start(unit, progress, cancelled)

    @torch.inference_mode()
    def finish(self, passing: Passing) -> Embedded:
        """Wait for the batches and return the final vectors."""
        unit = pool_unit(passing, self._find_pooled_dim())
        return self._finish(unit, passing)

    @torch.inference_mode()
    def finish_means(self, passing: Passing, bounds: np.ndarray, tokens: np.ndarray) -> Embedded:
        """Wait for pieces and return the final vectors of their documents.

        Document `d` has pieces `bounds[d]` to before `bounds[d + 1]`. Pooled vectors are averaged,
        weighted by the pieces' `tokens` [n], and only then calibrated and normalised.
        """
        unit = pool_unit(passing, self._find_pooled_dim())
        means, status = average_pieces(unit.vectors, unit.status, tokens, bounds)
        return self._finish(replace(unit, vectors=means, status=status), passing)

    def windows(
        self,
        texts: Sequence[str],
        spans: Sequence[Sequence[tuple[int, int]]],
        window: int | None = None,
        overlap: int | None = None,
    ) -> Windows:
        """Cut documents into windows for late chunking; may run beside `embed_pieces`.

        `spans`: the pieces of each document, in characters. `window`: most tokens of a window,
        special tokens and prompt included (None: the model's limit). `overlap`: tokens that
        neighbouring windows share (None: an eighth). Raises `OptionError` for a pooler, a model or
        numbers with which late chunking does not work.
        """
        reads_last = any(part["name"] == "last-token" for part in self.space.pooler["parts"])
        if reads_last and self.replicas[0].forward.is_causal:
            raise OptionError(
                "chunks late: pooler last-token of a causal model reads one token; "
                "use chunks budget"
            )
        return make_windows(self.text_tokenizer, texts, spans, window, overlap)

    def embed_pieces(self, windows: Windows, wanted: np.ndarray | None = None) -> Embedded:
        """Embed pieces: pool the states of their windows' tokens.

        `wanted`: places of pieces, ascending, None for all. A piece that is its whole document has
        the vector that `encode` gives.
        """
        return self.finish(self.start_pieces(self.plan_pieces(windows, wanted)))

    def plan_pieces(self, windows: Windows, wanted: np.ndarray | None = None) -> PiecesUnit:
        """Plan the work for pieces; `wanted` as for `embed_pieces`."""
        if wanted is None:
            wanted = np.arange(len(windows.pieces))
        at_once = WINDOW_BATCHES[self.device.type] * self.tokens_per_batch
        return plan_pieces(windows, wanted, self._plan, at_once, apart=not self._lanes.on_cores)

    def start_pieces(self, unit: PiecesUnit, cancelled: threading.Event | None = None) -> Passing:
        """Queue the pieces behind the devices' earlier work; `cancelled` as for `start`."""
        return self._lanes.start_pieces(unit, cancelled)

    def _finish(self, unit: PooledUnit, passing: Passing) -> Embedded:
        if self.deterministic and self.device.type == "cuda" and unit.stats.oom_splits:
            _LOGGER.warning(
                "deterministic: %s batches were halved, because the memory of a GPU ran out;"
                " their vectors may differ in the last bits from those of another run",
                unit.stats.oom_splits,
            )
        final = finish(unit.vectors, self.space, self._calibration)
        pooled = None if final.pooled is None else final.pooled.numpy()
        idle = passing.started - self._ended
        self._ended = max(self._ended, unit.ended)
        return Embedded(
            vectors=final.vectors.numpy(),
            norms=final.norms.numpy(),
            pooled=pooled,
            # the calibration can lose a row too
            status=torch.maximum(unit.status, final.status).numpy(),
            stats=unit.stats,
            seconds=unit.seconds,
            idle=max(0.0, idle),
        )

    def _plan(self, tokenized: Tokenized) -> Iterator[Batch]:
        if self.deterministic:
            return plan_alike(tokenized, self.tokens_per_batch)
        if self.together is BatchSharing.ALONE:
            return plan_batches(tokenized, 1)
        most = self.tokens_per_batch
        budget = spread(most, len(tokenized.ids)) if self._spreads else most
        return plan_batches(tokenized, budget, equal=self.together is BatchSharing.EQUAL)

    def _find_pooled_dim(self) -> int:
        layers = self.space.pooler.get("then")
        return layers[-1]["dim"] if layers else self.replicas[0].pooler.dim


def _warn_of_prompts(trained: TrainedPrompts | None) -> None:
    """Warn a caller of `Encoder.load` that texts have none of the prompts of the training."""
    if trained is None:
        return
    prompts = [f"prompt={text!r}" for text in (trained.document, trained.query) if text]
    mend = f"say {' or '.join(prompts)}, or prompt='' if none is wanted"
    warnings.warn(
        f"{trained.request('documents')}; {mend}",
        stacklevel=3,  # this function and `load`
    )


def _check_machine(machine: Machine, dtype: str, int8: Int8Model | None) -> Machine:
    """Return the machine that a dtype runs on. Raises OptionError without the model or a GPU."""
    if dtype == INT8 and int8 is None:
        raise OptionError(MISSING)
    if dtype == INT8:
        machine = restrict_to_cpu(machine)
    if machine.refuses_unseen_gpu:
        refuse_unseen_gpu()
    return machine
