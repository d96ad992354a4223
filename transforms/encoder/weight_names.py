"""Find the prefix that a wrapper left before the names of a model's weights."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sentence_beam.transforms.base.errors import OptionError
from sentence_beam.transforms.space.model_files import read_safetensors_keys

if TYPE_CHECKING:
    from torch import nn


def find_prefix(names: Collection[str], missing: Collection[str]) -> str | None:
    """Return the prefix under which `names` hold most missing weights; None without one.

    DataParallel (`module.`), torch.compile (`_orig_mod.`) and sentence-transformers' state dicts
    (`0.auto_model.`) leave such prefixes. Two equal copies of a model leave no choice: None.
    Weights that are tied to others are missing under any prefix.

    >>> find_prefix({"module.a.weight", "module.b.bias", "head.c"}, ["a.weight", "b.bias", "d"])
    'module.'
    >>> find_prefix({"query.a.weight", "document.a.weight"}, ["a.weight"])
    """
    existing = set(names)
    served: dict[str, int] = {}
    for key in sorted(missing):
        prefixes = [name.removesuffix(key) for name in existing if name.endswith(f".{key}")]
        if prefixes:
            served = {
                prefix: sum(prefix + other in existing for other in missing) for prefix in prefixes
            }
            break
    most = max(served.values(), default=0)
    best = [prefix for prefix, count in served.items() if count == most]
    return best[0] if len(best) == 1 else None


def refuse_prefix(folder: Path, weights: Iterable[Path], model: "nn.Module") -> None:
    """Raise OptionError if sentence-transformers left weights out for a prefix of their names.

    They would be random. `model` is the transformer that it loaded from the files `weights`.
    """
    names = {key for path in weights for key in read_safetensors_keys(path)}
    base = f"{model.base_model_prefix}."
    wanted = {key.removeprefix(base) for key, _ in model.named_parameters() if key not in names}
    prefix = find_prefix(names, {key for key in wanted if "pooler" not in key})
    if prefix not in (None, base):
        raise OptionError(
            f"{folder}: the names of its weights begin with {prefix!r}, which sentence-transformers"
            " does not read; remove it from the names"
        )
