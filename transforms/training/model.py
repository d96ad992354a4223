"""The model to train: sentence-transformers' modules around a backbone, and its trained weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from torch import nn

from sentence_beam.transforms.base.errors import OptionError, cite, first_line
from sentence_beam.transforms.encoder.load import quiet_transformers
from sentence_beam.transforms.encoder.weight_names import refuse_prefix
from sentence_beam.transforms.space import resolve_model
from sentence_beam.transforms.space.model_files import ModelFiles
from sentence_beam.transforms.training.cnn_module import CNN003
from sentence_beam.transforms.training.train_options import CLASSIFICATION, CNN, TrainOptions


def load(options: TrainOptions, device: str) -> SentenceTransformer:
    """Load the model to train, as `--model`, `--pooler`, `--lora` and others request it.

    Raises OptionError for a model that sentence-transformers cannot load, or that has nothing to
    train.
    """
    files = resolve_model(options.model, options.revision)
    if files.exported:
        raise OptionError(
            f"{cite('model')} {options.model} was exported from a store; train the model in its"
            " folder `model`"
        )
    try:
        with quiet_transformers():
            model = _load_modules(files, _choose_pooler(files, options.pooler), device)
    except (OSError, ValueError, ImportError) as error:
        raise OptionError(
            f"{cite('model')} {options.model} cannot be loaded by sentence-transformers"
            f" ({first_line(error)})"
        ) from error
    if not files.modules.static:
        backbone: Any = model[0].auto_model
        refuse_prefix(files.folder, files.weights, backbone)
        limit = files.position_limit or options.max_tokens
        model.max_seq_length = min(options.max_tokens, limit)
    if options.lora:
        _add_lora(model, options.lora)
    if options.freeze_backbone:
        model[0].requires_grad_(False)
        is_trained = any(weight.requires_grad for weight in model.parameters())
        if options.objective != CLASSIFICATION and not is_trained:
            raise OptionError(
                f"{cite('freeze_backbone=True')} leaves nothing to train; leave it out, or say"
                f" {cite('pooler')} cnn"
            )
    return model


def _choose_pooler(files: ModelFiles, pooler: str | None) -> str | None:
    """Return the pooler to put on the model, or None if it keeps its own modules."""
    own = files.modules.pooling
    if own is not None and (pooler is None or own == (pooler,)):
        return None
    return pooler or "mean"


def _load_modules(files: ModelFiles, pooler: str | None, device: str) -> SentenceTransformer:
    """Load the model of a folder, with its own modules if `pooler` is None.

    No code from the folder is run.
    """
    if pooler is None:
        classes = {"modeling_cnn.CNN003": CNN003}
        return SentenceTransformer._load_with_module_classes(
            str(files.root), classes, device=device, local_files_only=True
        )
    if files.modules.static:
        raise OptionError(
            f"{files.root} is a table of token embeddings, whose pooler is its own; leave out"
            f" {cite('pooler')}"
        )
    transformer = modules.Transformer(str(files.folder))
    width = transformer.get_embedding_dimension()
    pooling = CNN003(width) if pooler == CNN else modules.Pooling(width, pooling_mode=pooler)
    return SentenceTransformer(modules=[transformer, pooling], device=device)


def _add_lora(model: SentenceTransformer, rank: int) -> None:
    from peft import LoraConfig, TaskType

    config = LoraConfig(
        task_type=TaskType.FEATURE_EXTRACTION,
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
    )
    model.add_adapter(config)


def merge_lora(model: SentenceTransformer | CrossEncoder) -> None:
    """Add LoRA's adapters to the weights they belong to, and leave plain layers, in place."""
    from peft.tuners.lora import LoraLayer

    backbone: Any = model[0].auto_model
    for name, layer in list(backbone.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            parent, _, child = name.rpartition(".")
            setattr(backbone.get_submodule(parent), child, layer.get_base_layer())
    backbone._hf_peft_config_loaded = False
    del backbone.peft_config


def take_normalize(model: SentenceTransformer) -> nn.Module | None:
    """Remove the last module and return it, if it scales vectors to length 1, else None.

    A classifying layer over such short vectors would hardly learn at the rate that suits the model;
    the paper's model has no such module.
    """
    if not isinstance(model[-1], modules.Normalize):
        return None
    last = model[-1]
    del model[-1]
    return last


def save(
    model: SentenceTransformer | CrossEncoder, folder: Path, last: nn.Module | None, with_lora: bool
) -> None:
    """Write the model and `last` as a folder of sentence-transformers: safetensors and JSON."""
    if last is not None:
        model.append(last)
    if with_lora:
        merge_lora(model)
    model.float()
    with quiet_transformers():
        model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout and gradients off inside the context."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)
