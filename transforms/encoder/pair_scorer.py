"""Cross-encoders: models that read two texts together and return a score or a label.

Reimers & Gurevych, arXiv:1908.10084.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.base.extras import require_package
from sentence_beam.transforms.encoder.devices import resolve_device
from sentence_beam.transforms.encoder.load import quiet_transformers
from sentence_beam.transforms.encoder.weight_names import refuse_prefix
from sentence_beam.transforms.space.json_files import read_json_if_there
from sentence_beam.transforms.space.model_config import refuse_own_code
from sentence_beam.transforms.space.model_files import find_safetensors, read_safetensors_keys
from sentence_beam.transforms.space.st_modules import read_entries
from sentence_beam.transforms.space.whole_model import HEAD, refuse_adapters

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

BATCH = 32
AT_ONCE = 1024  # pairs between two reports of progress
MODULES = "sentence_transformers."
_CLASSES = ("AutoModelForSequenceClassification", "AutoModel", "AutoConfig")


class PairScorer:
    """A cross-encoder of sentence-transformers, with the folder that it was loaded from."""

    def __init__(self, model: "CrossEncoder", folder: str) -> None:
        self._model = model
        self.folder = folder

    @classmethod
    def load(cls, folder: str, flag: str, device: str = "auto") -> "PairScorer":
        """Load a folder that `train --cross-encoder` or sentence-transformers wrote.

        Only safetensors. Raises OptionError, which names `flag`, for a folder without a
        cross-encoder, MissingExtraError if sentence-transformers is not installed.
        """
        require_package("sentence_transformers", "train", flag)
        check_folder(folder, flag)
        from sentence_transformers import CrossEncoder

        try:
            with quiet_transformers():
                model = CrossEncoder(
                    str(Path(folder).expanduser()),
                    device=str(resolve_device(device)),
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"use_safetensors": True},
                )
        except Exception as error:  # transformers raises any type for a damaged model
            raise OptionError(f"{flag} {folder} cannot be loaded ({first_line(error)})") from None
        root = Path(folder).expanduser()
        refuse_prefix(root, find_safetensors(root), model[0].auto_model)
        return cls(model, folder)

    @cached_property
    def digest(self) -> str:
        """sha256 in hex over the folder's weights, config and tokenizer."""
        return hash_folder(Path(self.folder).expanduser())

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in their order; none if the model returns a score."""
        config: Any = self._model.config
        if self._model.num_labels == 1:
            return ()
        return tuple(str(config.id2label[place]) for place in range(self._model.num_labels))

    def scores(
        self,
        first: Sequence[str],
        second: Sequence[str],
        done: Callable[[int], None] = lambda pairs: None,
    ) -> np.ndarray:
        """Score pairs, float64 [n]; call `done` with the number of each part.

        Raises OptionError if the model returns labels.
        """
        if self.labels:
            raise OptionError(
                f"{self.folder} gives labels ({', '.join(self.labels)}), no score; train one with "
                f"train {cite('cross_encoder')} {cite('objective')} regression"
            )
        return self._predict(first, second, done).reshape(-1)

    def label_numbers(self, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        """Label pairs, places in `labels` int64 [n].

        Raises OptionError if the model returns scores.
        """
        if not self.labels:
            raise OptionError(
                f"{self.folder} gives scores, no labels; train one with train"
                f" {cite('cross_encoder')} {cite('objective')} classification"
            )
        return np.argmax(self._predict(first, second).reshape(-1, len(self.labels)), axis=1)

    def _predict(
        self,
        first: Sequence[str],
        second: Sequence[str],
        done: Callable[[int], None] = lambda pairs: None,
    ) -> np.ndarray:
        pairs = list(zip(first, second, strict=True))
        parts = [np.empty(0)]
        for start in range(0, len(pairs), AT_ONCE):
            part = pairs[start : start + AT_ONCE]
            outputs = self._model.predict(
                part, batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True
            )
            parts.append(np.asarray(outputs, np.float64).reshape(-1))
            done(len(part))
        return np.concatenate(parts)


def is_cross_encoder(folder: Path) -> bool:
    """Return whether a folder holds a model that returns scores or labels."""
    if not (folder / "config.json").is_file():
        return False
    named = read_json_if_there(folder / "config.json").get("architectures") or [""]
    return str(named[0]).endswith(HEAD)


def hash_folder(root: Path) -> str:
    """Return the sha256 in hex over a folder's weights, config and tokenizer."""
    digest = hashlib.sha256()
    settings = [*root.glob("*.json"), *root.glob("*.txt")]
    counted = [path for path in settings if path.name != "training.json"]
    for path in sorted([*counted, *find_safetensors(root)]):
        digest.update(path.name.encode() + b"\0")
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def check_folder(folder: str, flag: str) -> None:
    """Raise OptionError unless a folder has a cross-encoder in safetensors without its own code."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise OptionError(
            f"{flag} {folder} is no folder; give one that train {cite('cross_encoder')} wrote"
        )
    if not is_cross_encoder(root):
        raise OptionError(
            f"{flag} {folder} holds no cross-encoder; "
            f"give a folder that train {cite('cross_encoder')} wrote"
        )
    refuse_adapters(root)
    config = root / "config.json"
    refuse_own_code(config, read_json_if_there(config), _CLASSES, "transformers' own class")
    for path in find_safetensors(root):
        read_safetensors_keys(path)  # its error names the file
    code = [kind for kind in list_module_types(root) if not kind.startswith(MODULES)]
    if code:
        raise OptionError(
            f"{flag} {folder}: its module {code[0]} is code of its own, which is not run"
        )


def list_module_types(root: Path) -> list[str]:
    """Return the classes that modules.json names; none without that file."""
    path = root / "modules.json"
    return [entry.type for entry in read_entries(path)] if path.is_file() else []
