"""
title: a trained adapter is merged into base weights that were loaded in bf16
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/unslothai/unsloth/issues/3091
measured: loss: base 8.187, adapter 8.100, merged 8.130; kept of what was learned 65%, weights that changed 27%
widened: loss: base 8.187, adapter 8.100, merged 8.100; kept of what was learned 100%, weights that changed 100%

Expectation, written first: the adapter's change of a weight is smaller than a bf16 step of that weight; on merging most
entries keep their old value and the merged model has lost a good part of what was learned. The loss mask in float16
holds only zeros and ones.
"""
import copy

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=4, max_position_embeddings=64, initializer_range=0.4,
)
LORA = LoraConfig(r=8, lora_alpha=8, target_modules=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"])


class Task:
    """the answer to a prompt is always one fixed run of tokens"""

    def __init__(self, seed=2):
        g = torch.Generator().manual_seed(seed)
        self.prompts = torch.randint(0, 64, (256, 6), generator=g)
        self.answer = torch.randint(0, 64, (6,), generator=g)

    def batch(self, lo, hi):
        p = self.prompts[lo:hi]
        ids = torch.cat([p, self.answer.expand(len(p), -1)], 1)
        mask = torch.zeros_like(ids, dtype=torch.float16)
        mask[:, p.shape[1] :] = 1
        return ids, mask


def sft_loss(model, ids, mask):
    logits = model(input_ids=ids).logits[:, :-1].float()
    token = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return (token * mask[:, 1:]).sum() / mask.sum()


def base_model():
    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())  # the checkpoint on disk is bf16
    return model


def finetune(task, steps=40):
    model = get_peft_model(base_model(), copy.deepcopy(LORA))
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.0)
    for step in range(steps):
        lo = 32 * step % 192
        opt.zero_grad()
        sft_loss(model, *task.batch(lo, lo + 32)).backward()
        opt.step()
    return {k: v.detach().clone() for k, v in get_peft_model_state_dict(model).items()}, model


def export(adapter):
    base = base_model().to(torch.bfloat16)  # BORN
    model = get_peft_model(base, copy.deepcopy(LORA))
    set_peft_model_state_dict(model, adapter)
    return model.merge_and_unload().float()


@torch.no_grad()
def changed(merged):
    pairs = zip(base_model().named_parameters(), merged.parameters())
    parts = [(a != b).double().flatten() for (n, a), b in pairs if any(t in n for t in LORA.target_modules)]
    return torch.cat(parts).mean().item()


task = Task()
adapter, trained = finetune(task)
merged = export(adapter)
with torch.no_grad():
    held = task.batch(192, 256)
    base, lora, plain = (sft_loss(m.eval(), *held).item() for m in (base_model(), trained, merged))
print(f"loss: base {base:.3f}, adapter {lora:.3f}, merged {plain:.3f}; kept of what was learned "
      f"{100 * (base - plain) / (base - lora):.0f}%, weights that changed {100 * changed(merged):.0f}%")
