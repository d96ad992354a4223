"""A tiny model with random weights of every family of transformers' `AutoModel` that takes token
ids.
"""

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import CONFIG_MAPPING, MODEL_MAPPING, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
WORDS = tuple("abcdefghijklmnopqrstuvwxyz0123456789")
HIDDEN, LAYERS, HEADS, LONGEST = 64, 3, 4, 96
MOST_PARAMETERS = 8_000_000

# Every name that configs have for a size, and a small value for it.
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim"), HIDDEN),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), LAYERS
    ),
    **dict.fromkeys(("decoder_layers", "num_decoder_layers", "num_encoder_layers"), LAYERS),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), HEADS
    ),
    **dict.fromkeys(("decoder_attention_heads", "num_key_value_heads"), HEADS),
    **dict.fromkeys(("head_dim", "d_kv", "kv_channels", "attention_head_size"), HIDDEN // HEADS),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner"),
        48,
    ),
    **dict.fromkeys(("hidden_dim", "d_inner", "ffn_hidden_size", "dff", "block_ff_dim"), 48),
    **dict.fromkeys(
        ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_length"), LONGEST
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "num_experts_per_token"), 2),
    **dict.fromkeys(
        ("moe_intermediate_size", "shared_expert_intermediate_size", "expert_ffn_hidden_size"), 24
    ),
    **dict.fromkeys(
        ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 16
    ),
    **dict.fromkeys(
        ("index_head_dim", "linear_head_dim", "linear_key_head_dim", "linear_value_head_dim"), 16
    ),
    **dict.fromkeys(
        ("index_n_heads", "linear_num_heads", "linear_num_key_heads", "linear_num_value_heads"), 4
    ),
    **dict.fromkeys(
        (
            "mamba_n_heads",
            "n_mamba_heads",
            "num_encoder_attention_heads",
            "num_decoder_attention_heads",
        ),
        4,
    ),
    **dict.fromkeys(
        ("mamba_d_state", "state_size", "mamba_d_head", "mamba_dt_rank", "time_step_rank"), 16
    ),
    **dict.fromkeys(("sliding_window", "window_size", "local_attention", "attention_window"), 8),
    # of more tokens than that, rounding alone decides which of nearly equal ones are seen
    "index_topk": LONGEST,
    **dict.fromkeys(("chunk_size", "mamba_chunk_size", "attention_chunk_size"), 8),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1),
    **dict.fromkeys(
        ("hidden_size_per_layer_input", "pronunciation_embed_dim", "shape_embed_dim"), 8
    ),
    "initializer_range": 0.2,
    "init_std": 0.2,
    "initializer_factor": 1.0,
}


class NotMadeError(Exception):
    """A family that cannot be made small, with the reason."""


def text_families() -> list[str]:
    """Names of all families whose model takes token ids."""
    return [name for name in MODEL_MAPPING_NAMES if _takes_token_ids(name)]


def _takes_token_ids(name: str) -> bool:
    try:
        return "input_ids" in inspect.signature(model_class(name).forward).parameters
    except (ImportError, ValueError):
        return False


def model_class(name: str) -> Any:
    """The class that `AutoModel` takes for a family, of an encoder-decoder with one for its encoder
    that one.
    """
    if name in MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES:
        return getattr(transformers, MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES[name])
    found = MODEL_MAPPING[CONFIG_MAPPING[name]]
    return found[0] if isinstance(found, list | tuple) else found


def save_family(name: str, folder: Path, **changes: Any) -> None:
    """A model of the family and its tokenizer, saved by transformers; `NotMadeError` where that
    cannot be.
    """
    tokenizer = word_tokenizer()
    try:
        make_model(name, **changes).save_pretrained(folder)
    except NotMadeError:
        raise
    except Exception as error:  # configs raise every kind for sizes that do not fit each other
        raise NotMadeError(f"{type(error).__name__}: {first_line(error)}") from error
    tokenizer.save_pretrained(folder)


def save_config_alone(name: str, folder: Path) -> None:
    """The family's config and a tokenizer, with weights that are none."""
    try:
        tiny_config(name).save_pretrained(folder)
    except Exception as error:
        raise NotMadeError(f"{type(error).__name__}: {first_line(error)}") from error
    word_tokenizer().save_pretrained(folder)
    save_file({"none": torch.zeros(1)}, folder / "model.safetensors")


def turn_padding(folder: Path, side: str) -> None:
    """Have the folder's tokenizer pad on this side."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "padding_side": side}))


def first_line(error: BaseException) -> str:
    """What an error says, one line of it."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def make_model(name: str, **changes: Any) -> nn.Module:
    """A seeded random model in eval mode."""
    config = tiny_config(name, **changes)
    kind = model_class(name)
    with torch.device("meta"):
        size = sum(weight.numel() for weight in kind._from_config(config).parameters())
    if size > MOST_PARAMETERS:
        raise NotMadeError(f"{size:,} parameters")
    torch.manual_seed(7)
    model = kind._from_config(tiny_config(name, **changes)).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "norm" in key.lower() or "bias" in key:
                weight.add_(0.1 * torch.randn_like(weight))
    return model


def tiny_config(name: str, **changes: Any) -> PreTrainedConfig:
    """The family's own defaults with every size small."""
    ids = {
        "vocab_size": len(SPECIAL) + len(WORDS),
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    ids |= {"sep_token_id": 2, "cls_token_id": 0, "unk_token_id": 3, "mask_token_id": 4}
    ids |= {"decoder_start_token_id": 2}
    given = {**ids, **_SIZES, **OWN.get(name, {}), **changes}
    return _shrunk(CONFIG_MAPPING[name], given, OWN.get(name, {}).keys())


def _shrunk(
    kind: type[PreTrainedConfig], sizes: Mapping[str, Any], always: Any = ()
) -> PreTrainedConfig:
    usual = kind()
    known = {*vars(usual), *kind.attribute_map}
    named = {
        key: value
        for key, value in sizes.items()
        if value is not None and (key in known or key in always)
    }
    parts = {
        key: getattr(usual, key)
        for key in kind.sub_configs
        if getattr(usual, key, None) is not None
    }
    inner = {key: _shrunk(type(part), sizes).to_dict() for key, part in parts.items()}
    return kind(**{**inner, **named})


def word_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, `<s>` before and `</s>` behind a text."""
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[(token, vocabulary[token]) for token in SPECIAL]
    )
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    names |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=LONGEST - 4, **names
    )


# What some families want besides, or in another way; None: as the family has it.
_MAMBA = {"mamba_d_head": 32, "mamba_expand": 2, "mamba_n_heads": 4, "mamba_d_state": 8}
_SECTIONS = {
    "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [2, 3, 3]}
}
_HYBRID = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
_HALF = {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "mrope_section": [1, 1, 2]}}
_HALF["rope_parameters"]["partial_rotary_factor"] = 0.5
OWN: dict[str, dict[str, Any]] = {
    "bailing_hybrid": _HYBRID,
    "bamba": {**_MAMBA, "attn_layer_indices": [1]},
    "big_bird": {"block_size": 4, "num_random_blocks": 2},
    "bigbird_pegasus": {"block_size": 4, "num_random_blocks": 2},
    "codegen": {"rotary_dim": 8},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_theta": 1e4, "rope_type": "default"}}
    },
    "cpmant": {"dim_head": 16, "dim_ff": 48, "prompt_length": 4},
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
    },
    "dots1": {
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "dots3_note_text": {"rope_parameters": None},
    "falcon_h1": {**_MAMBA, "mamba_d_ssm": 128},
    "funnel": {
        "num_hidden_layers": None,
        "n_layer": None,
        "num_layers": None,
        "block_sizes": [1, 1, 1],
        "d_head": 16,
    },
    "gemma3n_text": {
        "num_kv_shared_layers": 1,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    }
    | {
        "num_hidden_layers": 4,
        "laurel_rank": 4,
        "vocab_size_per_layer_input": 41,
        "activation_sparsity_pattern": [0.0] * 4,
    }
    | {
        "layer_types": [
            "sliding_attention",
            "full_attention",
            "sliding_attention",
            "full_attention",
        ]
    },
    "gemma4_text": {"vocab_size_per_layer_input": 41, "global_head_dim": 16},
    "gemma4_unified_text": {"vocab_size_per_layer_input": 41, "global_head_dim": 16},
    "glm4v_text": _SECTIONS,
    "glm4v_moe_text": _HALF,
    "glm_image_text": _SECTIONS,
    "glm_ocr_text": _SECTIONS,
    "gpt_neo": {"attention_types": [[["global", "local", "global"], 1]]},
    "gptj": {"rotary_dim": 8},
    "granitemoehybrid": {**_MAMBA, **_HYBRID},
    "hunyuan_vl_text": {"head_dim": 16},
    "hrm_text": {"initializer_range": 0.05},
    "ibert": {"max_position_embeddings": LONGEST + 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": _HYBRID,
    "led": {
        "attention_window": 8,
        "max_encoder_position_embeddings": LONGEST,
        "max_decoder_position_embeddings": LONGEST,
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1},
    "layoutlmv3": {"coordinate_size": 10, "shape_size": 12},
    "lilt": {"hidden_size": 48},
    "longformer": {"attention_window": [8, 8, 8]},
    "longt5": {"local_radius": 3, "global_block_size": 4},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 8},
    "mamba2": {"num_heads": 4, "head_dim": 32, "n_groups": 1},
    "neomme": {"embedding_rank": 8, "sliding_window": None},
    "prophetnet": {"num_hidden_layers": None, "n_layer": None, "num_layers": None},
    "qwen2_vl_text": _SECTIONS,
    "qwen2_5_vl_text": _SECTIONS,
    "qwen3_5_text": _HYBRID,
    "qwen3_5_moe_text": _HYBRID,
    "qwen3_next": _HYBRID,
    "qwen4_exp_text": _HYBRID,
    "reformer": {
        "axial_pos_shape": [16, 8],
        "axial_pos_embds_dim": [32, 32],
        "attn_layers": ["local", "lsh", "local"],
    }
    | {"lsh_attn_chunk_length": 8, "local_attn_chunk_length": 8, "num_hidden_layers": None},
    "roc_bert": {"pronunciation_vocab_size": 41, "shape_vocab_size": 41},
    "squeezebert": {"embedding_size": HIDDEN},
    "t5gemma": {"is_encoder_decoder": False},
    "xlm": {"n_langs": 1},
    "xlnet": {"max_position_embeddings": None, "d_head": 16, "max_length": None},
    "xmod": {"languages": ["en"], "default_language": "en"},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention"],
        "n_mamba_heads": 2,
    }
    | {"attention_head_dim": None, "attention_hidden_size": None},
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention"],
        "mamba_ngroups": 1,
    },
    "zaya": {"num_experts_per_tok": 1, "router_hidden_size": 8, "cca_time0": 2, "cca_time1": 2},
}
