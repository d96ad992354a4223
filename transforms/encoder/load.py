"""Loading a model's weights."""

import torch
from torch import nn
from transformers import MODEL_FOR_TEXT_ENCODING_MAPPING, AutoConfig, AutoModel, AutoModelForTextEncoding

from transforms.encoder.quiet import quiet_transformers
from transforms.errors import OptionError
from transforms.space.model_files import ModelFiles

_TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_FLOAT32_ONLY = frozenset(("xlnet",))  # its masks and positions are float32 whatever its weights are


def load_model(files: ModelFiles, dtype: str, device: torch.device) -> nn.Module:
    """The encoder in eval mode.

    Raises `OptionError` where its weights are damaged, not finite or do not cover the architecture, or this has no such
    dtype.
    """
    if dtype != "float32" and files.family in _FLOAT32_ONLY:
        raise OptionError(f"{files.folder}: {files.family} computes in float32 alone; say --dtype float32")
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(files.folder, local_files_only=True, trust_remote_code=False)
            # of an encoder-decoder (T5) only the encoder is wanted
            kind = AutoModelForTextEncoding if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING else AutoModel
            model, report = kind.from_pretrained(
                files.folder,
                config=config,
                dtype=_TORCH_DTYPES[dtype],
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
            )
    except Exception as error:  # transformers raises bare types of every kind for a damaged or unknown model
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise OptionError(f"{files.folder}: the model cannot be loaded ({reason})") from None
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing:
        raise OptionError(f"{files.folder}: the weights lack {missing[0]}; it would be random, fetch the model again")
    _check_finite(files, model)
    return model.to(device).eval()


def _check_finite(files: ModelFiles, model: nn.Module) -> None:
    """Rows of the embedding matrix spoil the texts that hold their tokens, all other weights spoil every text."""
    embedding = model.get_input_embeddings().weight  # type: ignore[operator]
    for name, weight in model.named_parameters():
        if weight is not embedding and "pooler" not in name and not bool(torch.isfinite(weight).all()):
            narrow = "" if weight.dtype == torch.float32 else " or say --dtype float32"
            raise OptionError(
                f"{files.folder}: the weights hold NaN or infinity in {name}; fetch the model again{narrow}"
            )


def resolve_device(device: str) -> torch.device:
    """The first of `resolve_devices`."""
    return resolve_devices(device)[0]


def resolve_devices(device: str) -> list[torch.device]:
    """`auto`: every GPU, else the CPU; `cuda` every GPU, `cuda:1` that one; `OptionError` for what is not there."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = [torch.device("cuda", number) for number in range(count)]
    if device == "cpu" or (device == "auto" and not gpus):
        return [torch.device("cpu")]
    found = gpus if device in ("auto", "cuda") else [gpu for gpu in gpus if str(gpu) == device]
    if not found:
        raise OptionError(f"device {device!r} is not there; allowed here: auto, cpu" + _cuda_word())
    return found


def _cuda_word() -> str:
    return ", cuda" if torch.cuda.is_available() else ""
