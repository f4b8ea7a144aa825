"""Adapters are found by structure and by name, and put into float32 and back."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from adapters import llama, network
from torch import nn

from dtypetrace.lora.adapters import find_adapters, to_float32

needs_peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="needs peft")


def names(model) -> dict[str, list[str]]:
    return {a.name: [n.removeprefix(a.name + ".") for n in a.parameters] for a in find_adapters(model)}


def test_down_and_up():
    assert names(network()) == {
        "0": ["lora_down.weight", "lora_up.weight"],
        "2": ["lora_down.weight", "lora_up.weight"],
    }


class Pair(nn.Module):
    """An adapter as others name its two matrices, with the base it patches outside or inside."""

    def __init__(self, down: str, up: str, base: bool = False):
        super().__init__()
        self.add_module(down, nn.Linear(4, 2, bias=False))
        self.add_module(up, nn.Linear(2, 4, bias=False))
        if base:
            self.org_module = nn.Linear(4, 4).requires_grad_(False)


def test_adapters_that_lie_beside_the_model():
    holder = nn.Module()
    holder.lora_unet_down_blocks_0_attn_to_q = Pair("lora_down", "lora_up")
    holder.lora_unet_mid_block = Pair("lora_down", "lora_up", base=True)
    found = names(nn.ModuleList([nn.Linear(4, 4).requires_grad_(False), holder]))
    assert list(found) == ["1.lora_unet_down_blocks_0_attn_to_q", "1.lora_unet_mid_block"]
    assert found["1.lora_unet_mid_block"] == ["lora_down.weight", "lora_up.weight"]


@pytest.mark.parametrize(
    ("holder", "down", "up"),
    [("attn", "lora_a", "lora_b"), ("to_q_lora", "down", "up"), ("attn", "hada_w1_a", "hada_w1_b")],
)
def test_other_namings(holder, down, up):
    model = nn.Sequential(nn.Linear(4, 4))
    model.add_module(holder, Pair(down, up))
    assert names(model) == {holder: [f"{down}.weight", f"{up}.weight"]}


def test_blocks_that_go_down_and_up_are_no_adapters():
    model = nn.Module()
    model.unet = Pair("down_blocks", "up_blocks")
    model.decoder = Pair("down", "up")
    with pytest.raises(ValueError, match="no adapters in Module"):
        find_adapters(model)


def test_trained_weights_beside_frozen_ones():
    model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4))
    assert names(model) == {"1": ["weight", "bias"]}


@needs_peft
@pytest.mark.parametrize("dora", [False, True])
def test_peft_says_what_is_an_adapter(dora):
    found = names(llama(torch.float16, use_dora=dora))
    assert list(found) == [
        f"base_model.model.model.layers.{i}.self_attn.{p}" for i in (0, 1) for p in ("q_proj", "v_proj")
    ]
    matrices = {tuple(sorted(m)) for m in found.values()}
    assert matrices == {
        ("lora_A.default.weight", "lora_B.default.weight", *(["lora_magnitude_vector.default.weight"] * dora))
    }


@needs_peft
@pytest.mark.parametrize("kind", ["LoHaConfig", "LoKrConfig", "IA3Config", "OFTConfig", "VeraConfig", "AdaLoraConfig"])
def test_other_kinds_of_peft_adapters(kind):
    import peft

    base = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    settings = {
        "IA3Config": dict(feedforward_modules=[]), "OFTConfig": dict(oft_block_size=4), "AdaLoraConfig": dict(total_step=10, init_r=4, target_r=2),
    }.get(kind, {})  # fmt: skip
    model = peft.get_peft_model(base, getattr(peft, kind)(target_modules=["0", "1"], **settings))
    found = find_adapters(model)
    assert {id(p) for a in found for p in a.parameters.values() if p.requires_grad} == {
        id(p) for p in model.parameters() if p.requires_grad
    }
    assert all("base_layer" not in n for a in found for n in a.parameters)


@needs_peft
def test_adapters_that_are_not_active_are_left_out():
    from peft import LoraConfig

    model = llama(torch.float16)
    model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj", "k_proj"]))
    assert len(find_adapters(model)) == 4
    model.set_adapter("other")
    found = names(model)
    assert [n.rpartition(".")[2] for n in found] == ["q_proj", "k_proj"] * 2
    assert set(map(tuple, found.values())) == {("lora_A.other.weight", "lora_B.other.weight")}


def test_to_float32_keeps_the_parameters():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    weight = model[0].lora_up.weight
    weight.grad = torch.ones_like(weight)
    assert to_float32(find_adapters(model)) == 4
    assert weight is model[0].lora_up.weight and weight.dtype is weight.grad.dtype is torch.float32
    assert model[0].base.weight.dtype is torch.float16
    optimizer.step()
    assert (model[0].lora_up.weight == -1).all()
    assert to_float32(find_adapters(model)) == 0
