"""The encoder: a loaded model with its pooler and calibration, from texts to final vectors."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from transforms.base.cores import Cores
from transforms.base.errors import OptionError, UnfitModelError
from transforms.base.python_names import parameters_of, python_names
from transforms.base.values import StrPath
from transforms.calibration import Calibration, check_space, load_calibration
from transforms.encoder.batches import Batch, BatchStats, UnitBatches, plan_alike, plan_batches
from transforms.encoder.devices import (
    Devices,
    PassedBatch,
    Passing,
    PooledUnit,
    passed,
    pooled_unit,
    resolve_devices,
)
from transforms.encoder.forward import Forward
from transforms.encoder.late import PiecesUnit, Windows, make_windows, plan_pieces
from transforms.encoder.load import load_layers, load_model, load_tables
from transforms.encoder.output import finish, weighted_means
from transforms.encoder.probe import BatchSharing
from transforms.encoder.replica import (
    PooledBatch,
    Replica,
    States,
    load_pooler,
    spread,
    tokens_per_alike_batch,
    tokens_per_batch,
)
from transforms.encoder.tokenize import KnownTokens, TextTokenizer, Tokenized
from transforms.pooling.token_statistics import TokenStatistics
from transforms.space.dtypes import resolve_dtype
from transforms.space.identity import Space
from transforms.space.model_files import DEFAULT_MODEL, ModelFiles
from transforms.space.recipe import Machine, Recipe
from transforms.space.spec import parse_pooler
from transforms.space.st_modules import DOCUMENT, QUERY, StModules

Progress = Callable[[int, int], None]
# batches of windows whose token states are in memory together
_WINDOW_BATCHES = {"cpu": 16, "cuda": 4}


@dataclass(frozen=True)
class Embedded:
    """What an encoder makes of `B` texts, in input order.

    `vectors` [B, dim] float32, final; `norms` [B] float32, lengths of the pooled vectors; `pooled`
    [B, P] float32, None where it is `vectors` (not normalised) or `vectors * norms`; `status` [B]
    uint8 (see `pooling.Status`); `stats`. `seconds` is how long the devices computed, `idle` how
    many they had had nothing to do when these texts came.
    """

    vectors: np.ndarray
    norms: np.ndarray
    pooled: np.ndarray | None
    status: np.ndarray
    stats: BatchStats
    seconds: float = 0.0
    idle: float = 0.0


class Encoder:
    """A loaded model with its pooler and calibration; threads may share it.

    What `encode` does in one go are steps that threads may take side by side, for one list of texts
    after the other: `tokenize`, `plan`, `start`, which waits for nothing, and `finish`.
    """

    def __init__(
        self,
        files: ModelFiles,
        space: Space,
        devices: Sequence[torch.device],
        machine: Machine,
        tables: Mapping[str, TokenStatistics] | None = None,
        calibration: Calibration | None = None,
        routes: "Routes | None" = None,
    ) -> None:
        self.space = space
        self._routes = routes
        self._calibration = calibration
        self.device = devices[0]
        self._tokenizer = TextTokenizer(
            files, space.prompt, space.max_tokens, space.pooler["parts"][0]
        )
        replicas = [self._replica(files, device, tables or {}) for device in devices]
        self._pooler = replicas[0].pooler
        self._together = replicas[0].forward.together
        self.deterministic = machine.deterministic
        asked = machine.tokens_per_batch
        if machine.deterministic:
            self.tokens_per_batch = tokens_per_alike_batch(asked, replicas[0], files.family)
        else:
            self.tokens_per_batch = tokens_per_batch(asked, replicas)
        self._replicas, self._alone = replicas, replicas[0]
        on_cores = len(replicas) == 1 and self.device.type == "cpu"
        self._cores = Cores()
        self._spreads = on_cores and asked is None
        self._devices = None if on_cores else Devices(replicas)
        # of a CPU: documents in windows, one unit after the other
        self._late = ThreadPoolExecutor(1, "late")
        self._one_at_a_time = threading.RLock()
        self._ended = 0.0  # when (perf_counter) the devices were through with what they had

    @classmethod
    @python_names(parameters_of(Recipe, Machine))
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
        """An encoder for `minilm`, a local directory or a hub id.

        `pooler` auto: the model's own modules, mean where it has none; `dtype` auto: what the
        device computes natively and the model can; `normalize` None: what the modules say for auto,
        True for every other pooler; `calibration` a folder that `fit` made, or what was read from
        one, "" for none, also where an export has one. It must have been fitted on vectors pooled
        as these are, but for the prompt, since queries may have one of their own. `deterministic`:
        a text's vector is the same to the bit whatever its neighbours and the number of threads. A
        folder that `export` made has its own values for what is not given. `route`: the way of
        texts that are given none, in a model that has several. Raises `OptionError` for options or
        files that do not work.
        """
        fitted = calibration if isinstance(calibration, Calibration) else None
        folder = "" if isinstance(calibration, Calibration) else calibration
        said: dict[str, Any] = {
            "model": model,
            "revision": revision,
            "pooler": pooler,
            "dtype": dtype,
        }
        said |= {
            "prompt": prompt,
            "prompt_name": prompt_name,
            "max_tokens": max_tokens,
            "normalize": normalize,
        }
        recipe = Recipe.of({**said, "truncate_dim": truncate_dim, "calibration": folder})
        return cls.of(recipe, Machine(device, tokens_per_batch, deterministic), fitted, route)

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        machine: Machine | None = None,
        calibration: Calibration | None = None,
        route: str = DOCUMENT,
    ) -> "Encoder":
        """The encoder of a recipe, its calibration read from its folder where none is given; raises
        as `load` does.
        """
        machine = machine or Machine()
        places, files = resolve_devices(machine.device), recipe.files(route)
        routes = Routes(files.modules, partial(cls.of, recipe, machine, calibration))
        said = recipe.as_exported(files)
        fitted = (
            load_calibration(said.calibration)
            if said.calibration and calibration is None
            else calibration
        )
        tables = load_tables(parse_pooler(said.pooler))

        def make(dtype: str) -> "Encoder":
            digest, width = (fitted.digest, fitted.dim) if fitted else (None, None)
            space = replace(said, dtype=dtype, precision="float32").space(files, digest, width)
            if fitted is not None:
                prompt = fitted.info["fitted_on"]["space"]["prompt"]
                check_space(fitted.info, replace(space, prompt=prompt), fitted.info["method"])
            return cls(files, space, places, machine, tables, fitted, routes)

        native = resolve_dtype(said.dtype, places[0].type, files.family)
        try:
            return make(native)
        except UnfitModelError:
            if said.dtype != "auto" or native == "float32":
                raise
        return make("float32")

    @property
    def dim(self) -> int:
        """The width of the final vectors."""
        return self.space.dim

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, which cuts nothing off; special tokens and prompt are not its
        business.
        """
        return self._tokenizer.whole

    @property
    def room(self) -> int | None:
        """How many tokens of its own a text may have before it is cut off; None where nothing is
        cut.
        """
        return self._tokenizer.room

    def encode(self, texts: str | Sequence[str], route: str | None = None) -> np.ndarray:
        """The final vectors [n, dim] float32 in input order; of one text that is no list, [dim].

        An empty text is its special tokens alone. `route`: `query`, `document` or another way that
        the model has for texts (sentence-transformers' Router); a model without any takes all texts
        alike. Raises `OptionError` with the place of an item that is no text or that has no token.
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
        """The token ids of the texts, packed; may run in another thread beside `embed`.

        Raises `OptionError` with the place of an item that is no text.
        """
        return self._tokenizer(texts)

    def words(self, tokenized: Tokenized) -> KnownTokens:
        """The known and unknown tokens of tokenized texts."""
        return self._tokenizer.words(tokenized)

    def embed(self, tokenized: Tokenized, progress: Progress | None = None) -> Embedded:
        """The vectors of tokenized texts, their status and counts.

        `progress(rows, real tokens)` is called after every batch, by any thread.
        """
        return self.finish(self.start(self.plan(tokenized), progress))

    def plan(self, tokenized: Tokenized) -> UnitBatches:
        """The batches of tokenized texts."""
        return UnitBatches(len(tokenized.counts), list(self._plan(tokenized)))

    def start(self, unit: UnitBatches, progress: Progress | None = None) -> Passing:
        """Hand the batches over; the devices take them when they are through with what they had
        before.

        On a CPU one batch alone runs at once, on all cores.
        """
        begun = perf_counter()

        def told(batch: Batch) -> None:
            if progress is not None:
                progress(len(batch.rows) - batch.fill, batch.stats(False).real)

        if self._devices is not None:
            through = self._devices.map(Replica.__call__, unit.batches, told)
            return Passing(unit.rows, through, len(self._replicas), begun)
        work = partial(_passed, self._alone, told)
        if self._on_many_cores(unit.batches):
            return Passing(
                unit.rows, self._cores.map(work, unit.batches), torch.get_num_threads(), begun
            )
        with self._one_at_a_time, torch.inference_mode():
            return Passing(unit.rows, iter([work(batch) for batch in unit.batches]), 1, begun)

    @torch.inference_mode()
    def finish(self, passing: Passing) -> Embedded:
        """The final vectors, once the batches are through."""
        unit = pooled_unit(passing, self._pooled_dim())
        return self._timed(self._finished(unit.vectors, unit.status, unit.stats), passing, unit)

    @torch.inference_mode()
    def finish_means(self, passing: Passing, bounds: np.ndarray, tokens: np.ndarray) -> Embedded:
        """The final vectors of documents from those of their pieces, `bounds[d]` to `bounds[d + 1]`
        for document `d`.

        Pooled vectors are averaged, each weighted by its piece's own `tokens` [n], and only then
        calibrated and normalised.
        """
        unit = pooled_unit(passing, self._pooled_dim())
        means, status = weighted_means(unit.vectors, unit.status, tokens, bounds)
        return self._timed(self._finished(means, status, unit.stats), passing, unit)

    def windows(
        self,
        texts: Sequence[str],
        spans: Sequence[Sequence[tuple[int, int]]],
        window: int | None = None,
        overlap: int | None = None,
    ) -> Windows:
        """Documents for late chunking, with the spans of their pieces in characters; may run beside
        `embed_pieces`.

        `window` most tokens that go through the model at once, special tokens and prompt among them
        (None: what it takes); `overlap` those that windows of a document share (None: an eighth).
        Raises `OptionError` for a pooler, a model or numbers that this does not go with.
        """
        reads_last = any(part["name"] == "last-token" for part in self.space.pooler["parts"])
        if reads_last and self._alone.forward.is_causal:
            raise OptionError(
                "chunks late: pooler last-token of a causal model reads one token; use chunks"
                " budget"
            )
        return make_windows(self._tokenizer, texts, spans, window, overlap)

    def embed_pieces(self, windows: Windows, wanted: np.ndarray | None = None) -> Embedded:
        """The vectors of pieces, pooled from the states of their windows' tokens.

        `wanted`: places of pieces, ascending, None for all. A piece that is its whole document has
        the vector that `encode` gives.
        """
        return self.finish(self.start_pieces(self.plan_pieces(windows, wanted)))

    def plan_pieces(self, windows: Windows, wanted: np.ndarray | None = None) -> PiecesUnit:
        """The work for pieces; `wanted` as for `embed_pieces`."""
        wanted = np.arange(len(windows.pieces)) if wanted is None else wanted
        at_once = _WINDOW_BATCHES[self.device.type] * self.tokens_per_batch
        return plan_pieces(windows, wanted, self._plan, at_once, apart=self._devices is not None)

    def start_pieces(self, unit: PiecesUnit) -> Passing:
        """Hand the pieces over, behind what the devices have; waits for nothing."""
        begun = perf_counter()
        if self._devices is None:
            through = self._late.submit(self._passed_pieces, unit)
            return Passing(unit.rows, (future.result() for future in (through,)), 1, begun)
        whole = self.start(unit.whole).passed
        others = self._devices.map(Replica.pieces, unit.jobs, _untold)
        return Passing(unit.rows, chain(whole, others), len(self._replicas), begun)

    def _passed_pieces(self, unit: PiecesUnit) -> PassedBatch:
        """Pieces through a CPU: windows side by side, one a core, where there are several."""

        def each(work: Callable[[Batch], States], batches: list[Batch]) -> Iterator[States]:
            return (
                self._cores.map(work, batches)
                if self._on_many_cores(batches)
                else map(work, batches)
            )

        def work(unit: PiecesUnit) -> list[PooledBatch]:
            parts = [part for batch in self.start(unit.whole).passed for part in batch.parts]
            return [*parts, *(part for job in unit.jobs for part in self._alone.pieces(job, each))]

        with self._one_at_a_time, torch.inference_mode():
            return passed(work, unit)

    def _on_many_cores(self, batches: Sequence[Batch]) -> bool:
        return self.deterministic or len(batches) > 1

    def _timed(self, embedded: Embedded, passing: Passing, unit: PooledUnit) -> Embedded:
        idle, self._ended = passing.started - self._ended, max(self._ended, unit.ended)
        return replace(embedded, seconds=unit.seconds, idle=max(0.0, idle))

    def _finished(self, pooled: torch.Tensor, status: torch.Tensor, stats: BatchStats) -> Embedded:
        final = finish(pooled, self.space, self._calibration)
        kept = None if final.pooled is None else final.pooled.numpy()
        status = torch.maximum(status, final.status)  # a row can be lost by the calibration too
        return Embedded(final.vectors.numpy(), final.norms.numpy(), kept, status.numpy(), stats)

    def _plan(self, tokenized: Tokenized) -> Iterator[Batch]:
        if self.deterministic:
            return plan_alike(tokenized, self.tokens_per_batch)
        if self._together is BatchSharing.ALONE:
            return plan_batches(tokenized, 1)
        budget = (
            spread(self.tokens_per_batch, len(tokenized.ids))
            if self._spreads
            else self.tokens_per_batch
        )
        return plan_batches(tokenized, budget, equal=self._together is BatchSharing.EQUAL)

    def _replica(
        self, files: ModelFiles, device: torch.device, tables: Mapping[str, TokenStatistics]
    ) -> Replica:
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            model = load_model(files, self.space.dtype, device)
            layers = load_layers(
                files.modules.layers if "then" in self.space.pooler else (), device
            )
            pooler = load_pooler(files, self.space, self._tokenizer, tables, device)
            return Replica(
                device, Forward(files, model, self._tokenizer, pooler.needs), pooler, layers
            )

    def _pooled_dim(self) -> int:
        then = self.space.pooler.get("then")
        return then[-1]["dim"] if then else self._pooler.dim


def _passed(replica: Replica, told: Callable[[Batch], None], batch: Batch) -> PassedBatch:
    found = passed(replica, batch)
    told(batch)
    return found


def _untold(_: object) -> None:
    """What is done once pieces are handed over."""


class Routes:
    """The encoders of a model's other ways for texts; `load` makes one of a route's name, when it
    is first needed.
    """

    def __init__(self, modules: StModules, load: Callable[..., Encoder]) -> None:
        self._modules, self._load = modules, load
        self._loaded: dict[str, Encoder] = {}
        self._loading = threading.Lock()

    def other(self, route: str) -> Encoder | None:
        """The encoder of a route; None where texts take the one that is loaded already."""
        if route == self._modules.route or (
            not self._modules.routes and route in (DOCUMENT, QUERY)
        ):
            return None
        if not self._modules.routes:
            raise OptionError(f"route {route!r}: this model has none; leave it out")
        with self._loading:
            if route not in self._loaded:
                self._loaded[route] = self._load(route=route)
            return self._loaded[route]
