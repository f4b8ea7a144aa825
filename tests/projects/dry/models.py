"""Writes folders that hold configurations of small models, and no weights."""

import json
from pathlib import Path


def text_to_image(folder: Path) -> Path:
    unet = {
        "_class_name": "UNet2DConditionModel", "sample_size": 32, "block_out_channels": [32, 64], "layers_per_block": 1,
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"], "norm_num_groups": 8, "cross_attention_dim": 32,
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"], "attention_head_dim": 8,
    }  # fmt: skip
    vae = {
        "_class_name": "AutoencoderKL", "block_out_channels": [16, 32], "layers_per_block": 1, "norm_num_groups": 8,
        "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2,
    }  # fmt: skip
    text = {
        "architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "hidden_size": 32, "vocab_size": 99,
        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 16,
    }  # fmt: skip
    for name, config in (("unet", unet), ("vae", vae), ("text_encoder", text)):
        _write(folder / name, config)
    return folder


def causal_lm(folder: Path) -> Path:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 200, "dtype": "bfloat16",
    }  # fmt: skip
    _write(folder, config)
    return folder


def _write(folder: Path, config: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
