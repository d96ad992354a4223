"""A pooler's SPEC made definite for one model: its own modules, numbers for words, digests for paths; or refused."""

from collections.abc import Callable

from transforms.errors import OptionError
from transforms.space.model_files import ModelFiles
from transforms.space.spec import PoolerPart, PoolerSpec, make_part
from transforms.space.token_table import read_table

TEXT = "{text}"
WK_START, WK_LAYERS = 4, 3
# Families whose published weights never learnt to fill a mask: they detect replacements, fill spans or permute.
_NO_TRAINED_MASK = frozenset(("electra", "t5", "mt5", "umt5", "xlnet"))
# Positions enter their attention as distances, so that a gap in the position ids changes nothing.
_NO_POSITION_IDS = frozenset(("deberta", "deberta-v2"))


def resolve_pooler(files: ModelFiles, spec: PoolerSpec, tokenizer: str) -> PoolerSpec:
    """The SPEC as it works on this model; `tokenizer` is its digest. Raises `OptionError` where it cannot."""
    if spec.is_auto:
        count = "all" if files.modules.include_prompt else "no-prompt"
        spec = PoolerSpec(tuple(_own_part(mode, count) for mode in files.modules.pooling or ("mean",)))
    return PoolerSpec(tuple(_resolve_part(files, part, tokenizer) for part in spec.parts))


def _own_part(mode: str, count: str) -> PoolerPart:
    # sentence-transformers leaves the remaining tokens their weights when it excludes the prompt
    rank = {"rank": "attended"} if mode == "weighted-mean" and count == "no-prompt" else {}
    return make_part(mode, count=count, **rank)


def _resolve_part(files: ModelFiles, part: PoolerPart, tokenizer: str) -> PoolerPart:
    _check_layers(files, part)
    if part.name in _RESOLVERS:
        part = _RESOLVERS[part.name](files, part)
    return part if part.table is None else _with_digest(part, tokenizer)


def _check_layers(files: ModelFiles, part: PoolerPart) -> None:
    layer = dict(part.options).get("layer", "last")
    if layer != "last" and int(layer) > files.layers:
        raise OptionError(f"pooler '{part}': layer {layer} is not there; {files.folder} has layers 0 to {files.layers}")
    if part.name == "cls-tanh" and not files.has_pooler_head():
        raise OptionError(f"pooler 'cls-tanh': {files.folder} holds no pooler weights; use cls or another pooler")
    if part.name == "last2" and files.layers < 2:
        raise OptionError(f"pooler 'last2': {files.folder} has {files.layers} block; use mean")


def _ditto(files: ModelFiles, part: PoolerPart) -> PoolerPart:
    block, head = map(int, str(part.option("head")).split("-"))
    if block > files.layers or head > files.heads:
        raise OptionError(
            f"pooler '{part}': no head {block}-{head}; {files.folder} has blocks 1 to {files.layers}, "
            f"heads 1 to {files.heads}"
        )
    return part


def _sbert_wk(files: ModelFiles, part: PoolerPart) -> PoolerPart:
    start, highest = part.option("start"), files.layers - WK_LAYERS + 1
    if highest < 0:
        raise OptionError(f"pooler '{part}' needs two blocks; {files.folder} has {files.layers}; use mean")
    if start == "auto":
        # 4 of 12 blocks, as published; the same third of a model that is too shallow for it
        start = WK_START if highest >= WK_START else min(files.layers // 3, highest)
    if int(start) > highest:
        raise OptionError(
            f"pooler '{part}': start={start} leaves fewer than {WK_LAYERS} layers of 0 to {files.layers}; "
            f"say start=0 to start={highest}"
        )
    layers = files.layers - int(start) + 1
    if not 1 <= int(part.option("window")) < layers:
        raise OptionError(f"pooler '{part}': window must be 1 to {layers - 1}, as {layers} layers are compared")
    return part.replaced(start=start)


def _remove_biases(files: ModelFiles, part: PoolerPart) -> PoolerPart:
    if part.option("variant") == "reference" and not files.has_word_pieces():
        raise OptionError(
            "pooler 'remove-biases': the reference's list is made of BERT's word pieces, which "
            f"{files.folder} does not have; give a PATH of token counts"
        )
    return part


def _prompt(files: ModelFiles, part: PoolerPart) -> PoolerPart:
    template, mask = str(part.option("template")), files.mask_token()
    if files.family in _NO_TRAINED_MASK:
        raise OptionError(f"pooler 'prompt': {files.family} was not trained to fill a mask; use another pooler")
    if part.option("denoise") == "yes" and files.family in _NO_POSITION_IDS:
        raise OptionError(f"pooler 'prompt': {files.family} has no absolute positions to shift; say denoise=no")
    if template.count(TEXT) != 1:
        raise OptionError(f"pooler 'prompt': the template {template!r} must hold {TEXT} once, where the sentence goes")
    if mask is None:
        raise OptionError(f"pooler 'prompt': the tokenizer of {files.folder} has no mask token; use another pooler")
    if template.count(mask) != 1:
        raise OptionError(f"pooler 'prompt': the template {template!r} must hold {mask} once, this model's mask token")
    return part


def _with_digest(part: PoolerPart, tokenizer: str) -> PoolerPart:
    """The part with its table's digest for the path; refuses a table of another method or tokenizer."""
    table = read_table(str(part.table))
    method = "tfidf" if part.name == "tfidf" else "token-counts"
    if table.described["method"] != method:
        found = table.described["method"]
        raise OptionError(f"pooler '{part}': {part.table} was fitted with --method {found}; fit it with {method}")
    if table.described["tokenizer"] != tokenizer:
        raise OptionError(
            f"pooler '{part}': {part.table} counts tokens of another tokenizer; fit it with this model (--model)"
        )
    return part.replaced(table=table.digest)


_RESOLVERS: dict[str, Callable[[ModelFiles, PoolerPart], PoolerPart]] = {
    "ditto": _ditto,
    "sbert-wk": _sbert_wk,
    "remove-biases": _remove_biases,
    "prompt": _prompt,
}
