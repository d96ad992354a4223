"""Cross-encoders to train: a model reads both texts of a pair together (arXiv:1908.10084)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import CrossEncoder
from sentence_transformers.base import modules
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, CrossEntropyLoss
from torch import nn

from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.encoder.load import quiet_transformers
from sentence_beam.transforms.encoder.pair_scorer import (
    check_folder,
    hash_folder,
    is_cross_encoder,
)
from sentence_beam.transforms.encoder.weight_names import refuse_prefix
from sentence_beam.transforms.space import resolve_model, resolve_space
from sentence_beam.transforms.space.model_files import find_safetensors
from sentence_beam.transforms.training.train_options import TrainOptions


def load(options: TrainOptions, labels: Sequence[str], device: str) -> CrossEncoder:
    """Load the model to train, with a head for labels, or for a score if there are none.

    `--model` may be an encoder or a cross-encoder; a head of another width is replaced. Raises
    OptionError for a model that sentence-transformers cannot load so.
    """
    root, limit = _find_files(options)
    head: dict[str, Any] = {"num_labels": len(labels) or 1}
    if labels:
        head["id2label"] = dict(enumerate(labels))
        head["label2id"] = {label: place for place, label in enumerate(labels)}
    try:
        with quiet_transformers():
            transformer = modules.Transformer(
                str(root),
                transformer_task="sequence-classification",
                config_kwargs={**head, "local_files_only": True, "trust_remote_code": False},
                model_kwargs={
                    "use_safetensors": True,
                    "ignore_mismatched_sizes": True,
                    "local_files_only": True,
                    "trust_remote_code": False,
                },
                processor_kwargs={"local_files_only": True, "trust_remote_code": False},
            )
            model = CrossEncoder(modules=[transformer], device=device)
    except Exception as error:  # transformers raises all kinds for a model without such a head
        raise OptionError(
            f"{cite('model')} {options.model} cannot be a cross-encoder ({first_line(error)})"
        ) from error
    refuse_prefix(root, find_safetensors(root), transformer.auto_model)
    model.max_seq_length = min(options.max_tokens, limit or options.max_tokens)
    return model


def _find_files(options: TrainOptions) -> tuple[Path, int | None]:
    """Return the model's folder, and the limit of tokens of an encoder.

    Raises OptionError for a model that is not a transformer.
    """
    root = Path(options.model).expanduser()
    if is_cross_encoder(root):
        check_folder(options.model, cite("model"))
        return root, None
    files = resolve_model(options.model, options.revision)
    if files.modules.static or files.exported:
        raise OptionError(
            f"{cite('model')} {options.model} is not a transformer, which {cite('cross_encoder')}"
            " needs; name another"
        )
    return files.folder, files.position_limit


def identify_weights(options: TrainOptions) -> str:
    """Return the id of the first weights: a cross-encoder's digest, or an encoder's space."""
    root = Path(options.model).expanduser()
    if is_cross_encoder(root):
        return hash_folder(root)
    files = resolve_model(options.model, options.revision)
    if is_cross_encoder(files.folder):
        return hash_folder(files.folder)
    return resolve_space(files).id


def make_loss(model: CrossEncoder, labels: int) -> nn.Module:
    """Return the cross entropy of labels, or of a score from 0 to 1."""
    return CrossEntropyLoss(model) if labels else BinaryCrossEntropyLoss(model)
