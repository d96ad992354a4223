"""Resolve a pooler's SPEC for one model: its modules, numbers for words, digests for paths."""

from collections.abc import Callable
from typing import Protocol

from sentence_beam.transforms.base.errors import OptionError, cite
from sentence_beam.transforms.space.model_files import STATIC, ModelFiles
from sentence_beam.transforms.space.pooler_spec import PoolerPart, PoolerSpec, make_part
from sentence_beam.transforms.space.token_table import read_table

TEXT = "{text}"
INT8_POOLERS = (
    "mean", "cls", "max", "mean-sqrt-len", "last-token", "weighted-mean", "first-last", "last2",
)  # fmt: skip
WK_START = 4
WK_LAYERS = 3
# Families that were not trained to fill a mask: they detect replacements, fill spans or permute.
_NO_TRAINED_MASK = frozenset(("electra", "t5", "mt5", "umt5", "xlnet"))
# Their attention uses distances, so that a gap in the position ids changes nothing.
_NO_POSITION_IDS = frozenset(("deberta", "deberta-v2"))


def resolve_pooler(files: ModelFiles, spec: PoolerSpec, tokenizer: str) -> PoolerSpec:
    """The SPEC with all its values for this model, whose tokenizer has this digest.

    Raises `OptionError` if the pooler does not work on this model.
    """
    if spec.is_auto:
        count = "all" if files.modules.include_prompt else "no-prompt"
        modes = files.modules.pooling or ("mean",)
        spec = PoolerSpec(tuple(_make_own_part(mode, count) for mode in modes))
    if files.family == STATIC and any(part.name != "static" for part in spec.parts):
        raise OptionError(
            f"pooler '{spec}': {files.folder} is a table of token embeddings; use auto or static"
        )
    return PoolerSpec(tuple(_resolve_part(files, part, tokenizer) for part in spec.parts))


def check_int8_pooler(files: ModelFiles, spec: PoolerSpec, auto: bool) -> None:
    """Raise `OptionError` for a pooler that reads more than the last two or the outer layers.

    Quantised models return no attention, no rows of the embedding matrix and few layers.
    """
    others = [part.name for part in spec.parts if part.name not in INT8_POOLERS]
    if auto and files.modules.mix is not None:
        others.append("of mixed layers")
    if others:
        allowed = ", ".join(INT8_POOLERS)
        raise OptionError(
            f"pooler {others[0]}: dtype int8 has only {allowed}; say {cite('dtype')} float32"
        )


def _make_own_part(mode: str, count: str) -> PoolerPart:
    # sentence-transformers leaves the remaining tokens their weights when it excludes the prompt
    rank = {"rank": "attended"} if mode == "weighted-mean" and count == "no-prompt" else {}
    return make_part(mode, count=count, **rank)


def _resolve_part(files: ModelFiles, part: PoolerPart, tokenizer: str) -> PoolerPart:
    part = fit_part(part, files, files.folder)
    if part.name in _CHECKS:
        _CHECKS[part.name](files, part)
    return part if part.table is None else _fill_digest(part, tokenizer)


class ModelSizes(Protocol):
    """The sizes of a model that decide which poolers it can serve.

    `ModelFiles` and `pooling.ModelShape` have them.
    """

    @property
    def layers(self) -> int:
        """The number of transformer blocks."""

    @property
    def heads(self) -> int | None:
        """The attention heads of a block; None if unknown."""

    @property
    def has_pooler_head(self) -> bool:
        """Whether the checkpoint has a tanh pooler."""

    @property
    def has_cnn_head(self) -> bool:
        """Whether the model was trained with a CNN head."""


def fit_part(part: PoolerPart, sizes: ModelSizes, model: object) -> PoolerPart:
    """The part for a model of these sizes, with numbers for words.

    Raises `OptionError`, which names the `model`, if the model has no such layer, head, tanh pooler
    or CNN head.
    """
    layer = dict(part.options).get("layer", "last")
    if layer != "last" and int(layer) > sizes.layers:
        raise OptionError(
            f"pooler '{part}': layer {layer} is not there; {model} has layers 0 to {sizes.layers}"
        )
    if part.name == "cls-tanh" and not sizes.has_pooler_head:
        raise OptionError(
            f"pooler 'cls-tanh': {model} holds no pooler weights; use cls or another pooler"
        )
    if part.name == "cnn" and not sizes.has_cnn_head:
        raise OptionError(
            f"pooler 'cnn': {model} holds no CNN head; train one with it, or use another pooler"
        )
    if part.name == "last2" and sizes.layers < 2:
        raise OptionError(f"pooler 'last2': {model} has {sizes.layers} block; use mean")
    if part.name == "ditto":
        _check_head(part, sizes, model)
    return _fit_sbert_wk(part, sizes.layers, model) if part.name == "sbert-wk" else part


def read_attention_head(part: PoolerPart) -> tuple[int, int]:
    """The numbers of block and head in `head=L-H`, both from 1."""
    block, head = map(int, str(part.option("head")).split("-"))
    return block, head


def _check_head(part: PoolerPart, sizes: ModelSizes, model: object) -> None:
    block, head = read_attention_head(part)
    if block > sizes.layers or head > (sizes.heads or head):
        raise OptionError(
            f"pooler '{part}': no head {block}-{head}; {model} has blocks 1 to {sizes.layers},"
            f" heads 1 to {sizes.heads}"
        )


def _fit_sbert_wk(part: PoolerPart, blocks: int, model: object) -> PoolerPart:
    start = part.option("start")
    highest = blocks - WK_LAYERS + 1
    if highest < 0:
        raise OptionError(f"pooler '{part}' needs two blocks; {model} has {blocks}; use mean")
    if start == "auto":
        # 4 of 12 blocks, as published; in models with few blocks the same third
        start = WK_START if highest >= WK_START else min(blocks // 3, highest)
    if int(start) > highest:
        raise OptionError(
            f"pooler '{part}': start={start} leaves fewer than {WK_LAYERS} layers of 0 to {blocks};"
            f" say start=0 to start={highest}"
        )
    layers = blocks - int(start) + 1
    if not 1 <= int(part.option("window")) < layers:
        raise OptionError(
            f"pooler '{part}': window must be 1 to {layers - 1}, as {layers} layers are compared"
        )
    return part.replaced(start=start)


def _check_remove_biases(files: ModelFiles, part: PoolerPart) -> None:
    if part.option("variant") == "reference" and not files.has_word_pieces():
        raise OptionError(
            "pooler 'remove-biases': the reference's list is made of BERT's word pieces, which "
            f"{files.folder} does not have; give a PATH of token counts"
        )


def _check_prompt(files: ModelFiles, part: PoolerPart) -> None:
    template = str(part.option("template"))
    mask = files.mask_token()
    if files.family in _NO_TRAINED_MASK:
        raise OptionError(
            f"pooler 'prompt': {files.family} was not trained to fill a mask; use another pooler"
        )
    if part.option("denoise") == "yes" and files.family in _NO_POSITION_IDS:
        raise OptionError(
            f"pooler 'prompt': {files.family} has no absolute positions to shift; say denoise=no"
        )
    if template.count(TEXT) != 1:
        raise OptionError(
            f"pooler 'prompt': the template {template!r} must hold {TEXT} once, where the sentence"
            " goes"
        )
    if mask is None:
        raise OptionError(
            f"pooler 'prompt': the tokenizer of {files.folder} has no mask token; use another"
            " pooler"
        )
    if template.count(mask) != 1:
        raise OptionError(
            f"pooler 'prompt': the template {template!r} must hold {mask} once, this model's mask"
            " token"
        )


def _fill_digest(part: PoolerPart, tokenizer: str) -> PoolerPart:
    """The part with its table's digest in place of the path.

    Raises `OptionError` for a table of another method or tokenizer.
    """
    table = read_table(str(part.table))
    method = "tfidf" if part.name == "tfidf" else "token-counts"
    fitted = table.described["method"]
    if fitted != method:
        raise OptionError(
            f"pooler '{part}': {part.table} was fitted with {cite('method')} {fitted}; fit it with"
            f" {method}"
        )
    if table.described["tokenizer"] != tokenizer:
        raise OptionError(
            f"pooler '{part}': {part.table} counts tokens of another tokenizer; fit it with this"
            f" model ({cite('model')})"
        )
    return part.replaced(table=table.digest)


_CHECKS: dict[str, Callable[[ModelFiles, PoolerPart], None]] = {
    "remove-biases": _check_remove_biases,
    "prompt": _check_prompt,
}
