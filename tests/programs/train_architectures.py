"""Train tiny models of many architectures of transformers for two steps each inside `portable()`; print their digests.

    python train_architectures.py bert mixtral vit

Weights are drawn and not fetched. One line of JSON for each architecture: its name and the digest of all parameters
and buffers after two steps of AdamW, or the error that it ended with.
"""

import hashlib
import json
import sys
import warnings
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

import samerun

WITHOUT_A_SEED = ("reformer",)
"""In training it draws a seed from the system's entropy (`torch.seed()`): no two runs of it are the same."""
LARGEST_MODEL = 2_000_000  # parameters: one whose size the values below do not reach is left out
LANGUAGE_MODELS: dict[str, Any] = {
    **modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    **modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    **modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
IMAGE_MODELS: dict[str, Any] = {
    name: classes
    for name, classes in modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES.items()
    if name not in LANGUAGE_MODELS
}

# Configurations name one thing in many ways: of these values each gets those whose names it has.
SMALL_VALUES = {
    96: "vocab_size",
    64: "intermediate_size ffn_dim d_inner d_ff n_inner hidden_dim encoder_ffn_dim decoder_ffn_dim ffn_hidden_size "
    "max_position_embeddings n_positions max_source_positions",
    32: "hidden_size d_model n_embd dim embedding_size emb_dim word_embed_proj_dim moe_intermediate_size "
    "shared_expert_intermediate_size moe_shared_expert_intermediate_size expert_ffn_hidden_size",
    16: "q_lora_rank kv_lora_rank",
    8: "head_dim d_kv d_head attention_head_size qk_rope_head_dim qk_nope_head_dim v_head_dim",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
    "num_local_experts n_routed_experts moe_num_experts rotary_dim",
    2: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
    "num_key_value_heads num_experts_per_tok moe_k eos_token_id",
    1: "n_group topk_group bos_token_id",
    0: "pad_token_id",
}
FOUR_STAGES = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
CONVOLUTIONS = {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1]}
PYRAMID = {**FOUR_STAGES, "num_attention_heads": [1, 1, 2, 2]}
MAMBA_HEADS = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8}
LINEAR_AND_FULL = {"layer_types": ["linear_attention", "full_attention"]}
VALUES_OF_ARCHITECTURE: dict[str, dict[str, Any]] = {
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "bit": {"embedding_size": 8, "hidden_sizes": [32, 32, 32, 32], "depths": [1, 1, 1, 1], "num_groups": 4},
    "convnext": CONVOLUTIONS,
    "convnextv2": CONVOLUTIONS,
    "dots1": {"n_shared_experts": 1},
    "falcon": {"head_dim": None},
    "focalnet": {"embed_dim": 8, "depths": [1, 1], "focal_levels": [1, 1], "focal_windows": [3, 3], "patch_size": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "granitemoehybrid": {**MAMBA_HEADS, "layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_offset": 1, "attn_layer_period": 2, "use_mamba_kernels": False},
    "levit": {
        **{"hidden_sizes": [16, 16, 16], "num_attention_heads": [2, 2, 2], "depths": [1, 1, 1], "key_dim": [8, 8, 8]},
        **{"image_size": 64, "patch_size": 16},
    },
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "longt5": {"decoder_start_token_id": 0},
    "mamba2": {"num_heads": 8},
    "mobilenet_v1": {"depth_multiplier": 0.25, "min_depth": 8},
    "mobilenet_v2": {"depth_multiplier": 0.25},
    "mobilevit": {
        **{"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16], "patch_size": 2},
        "num_attention_heads": 2,
    },
    "poolformer": {**FOUR_STAGES, "patch_size": 7},
    "prophetnet": {"num_hidden_layers": None, "num_encoder_layers": 2, "num_decoder_layers": 2},
    "pvt": {**PYRAMID, "patch_sizes": [4, 2, 2, 2]},
    "pvt_v2": PYRAMID,
    "qwen3_5_text": LINEAR_AND_FULL,
    "qwen3_next": LINEAR_AND_FULL,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "regnet": {"embedding_size": 8, **CONVOLUTIONS, "groups_width": 8},
    "resnet": {"embedding_size": 8, **CONVOLUTIONS},
    "segformer": {**PYRAMID, "decoder_hidden_size": 16},
    "swiftformer": {"depths": [1, 1, 1, 1], "embed_dims": [8, 8, 16, 16]},
    "switch_transformers": {"decoder_start_token_id": 0},
    "t5": {"decoder_start_token_id": 0},
    "xlnet": {"max_position_embeddings": None},
    "zaya": {"num_experts_per_tok": 1},
}


def has_value(config: Any, name: str) -> bool:
    try:
        return hasattr(config, name)
    except Exception:  # one that differs by layer refuses to be asked for
        return False


def make_small_config(name: str) -> Any:
    config_class = transformers.CONFIG_MAPPING[name]
    default = config_class()
    values: dict[str, Any] = {
        key: value for value, keys in SMALL_VALUES.items() for key in keys.split() if has_value(default, key)
    }
    if "qk_rope_head_dim" in values:  # the size of a head is the sum of its two parts, and each head has its own keys
        values.pop("head_dim", None)
        values["num_key_value_heads"] = 4
    if name in IMAGE_MODELS:
        values.update(image_size=32, patch_size=8, num_labels=3)
    values.update(VALUES_OF_ARCHITECTURE.get(name, {}))
    return config_class(**{key: value for key, value in values.items() if value is not None})


def make_model(name: str) -> torch.nn.Module:
    classes = LANGUAGE_MODELS.get(name) or IMAGE_MODELS[name]
    model_class = getattr(transformers, classes if isinstance(classes, str) else classes[0])
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(make_small_config(name)).parameters())
    if size > LARGEST_MODEL:
        raise ValueError(f"{size} parameters are too many")
    return model_class(make_small_config(name))


def make_batch(model: Any) -> dict[str, torch.Tensor]:
    if model.main_input_name == "pixel_values":
        size = model.config.to_dict().get("image_size", 32)
        return {"pixel_values": torch.randn(2, 3, size, size), "labels": torch.tensor([0, 2])}
    tokens = torch.randint(3, 96, (2, 16))
    return {"input_ids": tokens, "labels": tokens}


def train_two_steps(name: str) -> str:
    torch.manual_seed(0)
    model = make_model(name).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        model(**make_batch(model)).loss.backward()
        optimizer.step()
    digest = hashlib.sha256()
    for key, value in model.state_dict().items():
        digest.update(key.encode() + value.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    for name in sys.argv[1:] or sorted({*LANGUAGE_MODELS, *IMAGE_MODELS} - {*WITHOUT_A_SEED}):
        try:
            with samerun.portable():
                result = {"architecture": name, "digest": train_two_steps(name)}
        except Exception as error:
            result = {"architecture": name, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
