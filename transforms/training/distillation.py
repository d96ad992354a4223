"""Distil a sentence encoder into a table of token embeddings by model2vec."""

import importlib.metadata
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from sentence_beam.transforms import storage
from sentence_beam.transforms.base import progress
from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.corpus.collection_rows import list_files, read_files
from sentence_beam.transforms.corpus.found_columns import choose_text_column
from sentence_beam.transforms.corpus.row_blocks import Columns
from sentence_beam.transforms.corpus.syntax import Syntax
from sentence_beam.transforms.encoder.devices import resolve_devices
from sentence_beam.transforms.encoder.load import load_model, quiet_transformers
from sentence_beam.transforms.space import ModelFiles, resolve_model, resolve_space
from sentence_beam.transforms.training.distill_options import RECORD, DistillOptions, check_output
from sentence_beam.transforms.training.folders import staging, write_json

PACKAGES = ("sentence-beam", "model2vec", "skeletoken", "transformers", "torch")
# model2vec's names of poolers.
_POOLINGS: dict[tuple[str, ...], str] = {
    ("mean",): "mean",
    ("cls",): "first",
    ("last-token",): "last",
}
_WORD = re.compile(r"\w+")
_LEAST_TIMES = 2  # a rarer word may be a misspelling
_LONGEST = 40  # characters; longer strings are not words
_MOST_COUNTED = 4_000_000


@dataclass(frozen=True)
class NewWords:
    """The words of a corpus that a model's vocabulary lacks, the most frequent first.

    `rows`, `rejected` and `files` describe the corpus.
    """

    words: tuple[str, ...] = ()
    rows: int = 0
    rejected: int = 0
    files: tuple[dict[str, str], ...] = ()


def distill(options: DistillOptions) -> dict[str, Any]:
    """Write the table and return its record.

    Raises OptionError for a model that cannot be distilled, too many dimensions, input without
    words, and an output that exists.
    """
    output = check_output(options)
    files = resolve_model(options.model, options.revision)
    pooling = _find_pooling(files, options)
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(
            files.folder, local_files_only=True, trust_remote_code=False
        )
    if not tokenizer.is_fast:
        raise OptionError(
            f"{files.folder}: it has no fast tokenizer; save one there as tokenizer.json"
        )
    new_words = count_words(options, tokenizer.backend_tokenizer) if options.input else NewWords()
    with progress.stage(progress.LOADING):
        model = load_model(files, "float32", resolve_devices(options.device)[0])
    table, static = _distil_table(model, tokenizer, new_words.words, pooling, options)
    with staging(output) as folder:
        _write_model(folder, table, static)
        record = _make_record(options, files, new_words, table, folder)
        write_json(folder / RECORD, record)
        (folder / "README.md").write_text(_render_card(record), encoding="utf8")
    return record


def count_words(options: DistillOptions, tokenizer: Tokenizer) -> NewWords:
    """Count the input's words that are not tokens, in the tokenizer's spelling.

    Returns the most frequent ones.
    """
    inputs = list_files(options.input or (), options.format, Syntax.from_options(options))
    columns = Columns(choose_text_column(inputs, options.text_column))
    counts: Counter[str] = Counter()
    normalizer = tokenizer.normalizer
    rows = 0
    rejected = 0
    with progress.stage("counting words", things="rows"):
        for unit in read_files(inputs, columns):
            for text in unit.texts:
                spelled = normalizer.normalize_str(text) if normalizer is not None else text
                counts.update(_WORD.findall(spelled))
            if len(counts) > _MOST_COUNTED:  # frequent words will be counted again
                counts = Counter(dict(counts.most_common(_MOST_COUNTED // 2)))
            rows += len(unit.texts)
            rejected += len(unit.rejects)
            progress.step(len(unit.texts))
    if not counts:
        raise OptionError(
            f"{cite('input')} holds no words; check {cite('input')} and {cite('text_column')}"
        )
    words = tuple(_select_words(counts, tokenizer, options.words))
    sources = ({"path": file.path, "sha256": storage.sha256_of(file.path)[0]} for file in inputs)
    return NewWords(words, rows, rejected, tuple(sources))


def _select_words(counts: Counter[str], tokenizer: Tokenizer, most: int) -> Iterator[str]:
    """Yield words that the tokenizer reads as one word, and cuts into several tokens."""
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.no_padding()
    remaining = most
    for word, times in counts.most_common():
        if remaining == 0 or times < _LEAST_TIMES:
            return
        if len(word) <= _LONGEST and _is_new(word, tokenizer):
            remaining -= 1
            yield word


def _is_new(word: str, tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer reads a word as one, and cuts it into several tokens."""
    splitter = tokenizer.pre_tokenizer
    if splitter is not None and len(splitter.pre_tokenize_str(word)) != 1:
        return False
    return len(tokenizer.encode(word, add_special_tokens=False).ids) > 1


def _find_pooling(files: ModelFiles, options: DistillOptions) -> str:
    """Return model2vec's name of the model's pooling.

    Raises OptionError for a model with parts that model2vec would leave out.
    """
    modules = files.modules
    named = f"{cite('model')} {options.model}"
    if files.exported:
        raise OptionError(
            f"{named} was exported from a store; distil the model in its folder `model`"
        )
    if modules.static:
        raise OptionError(f"{named} is a table of token embeddings already")
    pooling = modules.pooling or ("mean",)
    parts = {
        "pooler " + "+".join(pooling): pooling not in _POOLINGS,
        "several routes": modules.routes,
        "layers before the pooling": modules.mix or modules.tokens,
        "layers after the pooling": [
            layer for layer in modules.layers if layer.kind != "normalize"
        ],
        "lower-casing before its tokenizer": modules.lower_case,
    }
    wrong = next((name for name, has_part in parts.items() if has_part), None)
    if wrong:
        raise OptionError(
            f"{named} has {wrong}, which model2vec would leave out; distil a model of a transformer"
            " with the pooler mean, cls or last-token"
        )
    if options.dim > files.hidden:
        raise OptionError(
            f"{cite('dim')} {options.dim}: {options.model} has {files.hidden} dimensions; say"
            f" {files.hidden} or less"
        )
    return _POOLINGS[pooling]


def _distil_table(
    model: Any, tokenizer: Any, words: Iterable[str], pooling: str, options: DistillOptions
) -> tuple[np.ndarray, Tokenizer]:
    """Distil the embedding of each token, float32 [tokens, dim], weighted by its rank.

    Also returns the tokenizer of these tokens.
    """
    from model2vec.distill import distill_from_model, inference

    device = str(next(model.parameters()).device)
    settings: dict[str, Any] = {
        "pca_dims": options.dim,
        "quantize_to": "float32",
        "pooling": pooling,
        "device": device,
    }
    try:
        with _counting(inference), _silencing("model2vec"), quiet_transformers():
            made = distill_from_model(
                model=model, tokenizer=tokenizer, vocabulary=list(words), **settings
            )
    except Exception as error:  # model2vec raises all kinds for a tokenizer that it cannot read
        raise OptionError(
            f"{cite('model')} {options.model}: model2vec cannot distil it ({first_line(error)})"
        ) from error
    table = np.asarray(made.embedding, np.float32)
    if table.shape[1] != options.dim:
        raise OptionError(
            f"{cite('dim')} {options.dim}: the vocabulary has {len(table)} tokens; say less than"
            " that"
        )
    if made.weights is not None:
        table = (table * np.asarray(made.weights)[:, None]).astype(np.float32)
    made.tokenizer.no_padding()
    made.tokenizer.no_truncation()
    # safetensors would write an array in column order as if it were in row order
    return np.ascontiguousarray(table), made.tokenizer


@contextmanager
def _counting(inference: Any) -> Iterator[None]:
    """Replace model2vec's progress bar by this command's own."""

    with ExitStack() as stages:

        class Bar:
            def __init__(self, total: int = 0, **_: Any) -> None:
                stages.enter_context(progress.stage("embedding tokens", total, "tokens"))

            def update(self, done: int) -> None:
                progress.step(done)

        stages.callback(setattr, inference, "tqdm", inference.tqdm)
        inference.tqdm = Bar
        yield


@contextmanager
def _silencing(name: str) -> Iterator[None]:
    """Silence a package's warnings, one for each word that it already knows."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _write_model(folder: Path, table: np.ndarray, tokenizer: Tokenizer) -> None:
    """Write sentence-transformers' modules StaticEmbedding and Normalize."""
    save_file({"embedding.weight": table}, folder / "model.safetensors")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    kinds = {"": "StaticEmbedding", "1_Normalize": "Normalize"}
    listed = [
        {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "1_Normalize").mkdir()
    write_json(folder / "modules.json", listed)
    config: dict[str, Any] = {
        "similarity_fn_name": "cosine",
        "prompts": {},
        "default_prompt_name": None,
    }
    write_json(folder / "config_sentence_transformers.json", config)


def _make_record(
    options: DistillOptions, files: ModelFiles, new_words: NewWords, table: np.ndarray, folder: Path
) -> dict[str, Any]:
    """Return the content of distill.json."""
    return {
        "format": 1,
        "options": asdict(options),
        "distilled_from": resolve_space(files).to_json(),
        "space": resolve_space(resolve_model(str(folder))).id,
        "dim": options.dim,
        "tokens": len(table),
        "bytes": (folder / "model.safetensors").stat().st_size,
        "words": len(new_words.words),
        "rows": new_words.rows,
        "rejected": new_words.rejected,
        "data": list(new_words.files),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _render_card(record: dict[str, Any]) -> str:
    words = f", {record['words']:,} of them words of a corpus" if record["words"] else ""
    return (
        "---\nlibrary_name: sentence-transformers\ntags:\n- static-embeddings\n-"
        f" sentence-similarity\n---\n\n# {Path(record['options']['output']).name}\n\nA table of"
        f" {record['tokens']:,} token embeddings{words}, of {record['dim']} dimensions, distilled"
        f" from {record['options']['model']} by model2vec {record['versions']['model2vec']}."
        f" `{RECORD}` says how.\n\n```python\nfrom sentence_transformers import"
        ' SentenceTransformer\n\nSentenceTransformer("path/to/this/folder").encode(["a'
        ' text"])\n```\n'
    )
