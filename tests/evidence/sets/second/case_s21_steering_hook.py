"""
title: a steering direction is averaged in float32 and added to a bfloat16 Llama's residual stream by a hook
expect: collision
fix_at: 37

After activation-steering reports (Mihaiii/llm_steer, steering-vectors): the sum is float32, the layer norm of Llama hands the wide
stream on, and the next layer's q_proj refuses. Right: bring the finished direction to the model's dtype (or cast it in the hook).
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(6)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64)
model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
LAYER = 1


def residuals(ids):
    """The residual stream after LAYER at the last token."""
    kept = []

    def keep(module, inputs, output):
        hidden = output[0] if isinstance(output, tuple) else output
        kept.append(hidden[:, -1].detach())

    handle = model.model.layers[LAYER].register_forward_hook(keep)
    with torch.no_grad():
        model(input_ids=ids)
    handle.remove()
    return kept[0]


def contrast(positive, negative):
    plus, minus = residuals(positive), residuals(negative)
    difference = plus.float().mean(0) - minus.float().mean(0)  # BORN
    return difference / difference.norm()


class Steering:
    def __init__(self, direction, strength):
        self.direction, self.strength = direction, strength

    def __enter__(self):
        direction, strength = self.direction, self.strength

        def add(module, inputs, output):
            if isinstance(output, tuple):
                return (output[0] + strength * direction, *output[1:])
            hidden = output
            return hidden + strength * direction

        self.handle = model.model.layers[LAYER].register_forward_hook(add)
        return self

    def __exit__(self, *exc):
        self.handle.remove()


positive = torch.randint(0, 32, (6, 8))
negative = torch.randint(32, 64, (6, 8))
direction = contrast(positive, negative)
prompt = torch.randint(0, 64, (2, 5))

with torch.no_grad():
    plain = model(input_ids=prompt).logits[:, -1]
    with Steering(direction, strength=4.0):
        steered = model(input_ids=prompt).logits[:, -1]  # COLLIDES
print("moved by", round((steered - plain).float().abs().mean().item(), 3))
