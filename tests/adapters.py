"""Small models with adapters, for the tests of retraining."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, RANK = 64, 8


class Adapted(nn.Module):
    """A frozen Linear with ``lora_down`` and ``lora_up`` beside it."""

    detached = False

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH, dtype=dtype).requires_grad_(False)
        self.lora_down = nn.Linear(WIDTH, RANK, bias=False, dtype=dtype)
        self.lora_up = nn.Linear(RANK, WIDTH, bias=False, dtype=dtype)
        nn.init.normal_(self.lora_down.weight, std=1 / RANK)
        nn.init.zeros_(self.lora_up.weight)

    def forward(self, x):
        side = self.lora_up(self.lora_down(x.to(self.lora_down.weight.dtype))).to(x.dtype)
        return self.base(x) + (side.detach() if self.detached else side)


def network(dtype: torch.dtype = torch.float16) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Adapted(dtype), nn.SiLU(), Adapted(dtype), nn.SiLU())


def loss_of(model: nn.Module, scale: float = 1.0) -> torch.Tensor:
    weight = model[0].base.weight
    x = torch.randn(32, WIDTH, device=weight.device)
    return F.mse_loss(model(x.to(weight.dtype)).float(), torch.sin(x) / 2) * scale


def unet(dtype: torch.dtype) -> nn.Module:
    from diffusers import UNet2DConditionModel
    from peft import LoraConfig

    torch.manual_seed(0)
    model = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, block_out_channels=(16, 32), layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16, attention_head_dim=8, norm_num_groups=4,
    ).to(dtype)  # fmt: skip
    model.requires_grad_(False)
    model.add_adapter(LoraConfig(r=4, lora_alpha=4, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
    return model


def unet_loss(model: nn.Module) -> torch.Tensor:
    dtype = model.conv_in.weight.dtype
    sample, prompt = torch.randn(2, 4, 8, 8).to(dtype), torch.randn(2, 5, 16).to(dtype)
    return F.mse_loss(model(sample, torch.tensor([100, 700]), prompt).sample.float(), torch.randn(2, 4, 8, 8))


def llama(dtype: torch.dtype, *, four_bit: bool = False, **config) -> nn.Module:
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    base = LlamaForCausalLM(LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64,
    )).to(dtype)  # fmt: skip
    if four_bit:
        from bitsandbytes.nn import Linear4bit

        for layer in base.model.layers:
            for name in ("q_proj", "v_proj"):
                plain = getattr(layer.self_attn, name)
                quantised = Linear4bit(
                    plain.in_features, plain.out_features, bias=False, compute_dtype=dtype, quant_type="nf4"
                )
                quantised.load_state_dict(plain.state_dict())
                setattr(layer.self_attn, name, quantised.to("cpu"))
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", **config)
    return get_peft_model(base, lora, autocast_adapter_dtype=False)


def llama_loss(model: nn.Module) -> torch.Tensor:
    ids = torch.randint(0, 128, (2, 12))
    return model(input_ids=ids, labels=ids).loss
