"""
title: a steering direction found in numpy is added to a bfloat16 Llama by a hook
expect: collision
needs: transformers
fix_at: 35, 37

After Mihaiii/llm_steer#5 and pegasi-ai/reins#6 (activation addition; expected scalar type BFloat16 but found Float). The direction is
a mean difference of lists, hence float64; added in a forward hook it widens the residual stream, and the next layer's projection
inside the library refuses. Right change: the direction in the model's dtype, where it becomes a tensor (or in the hook).
"""
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM


class Steering:
    def __init__(self, model, layer):
        self.model, self.layer = model, model.model.layers[layer]
        self.strength, self.direction = 0.0, None

    @torch.no_grad()
    def last_states(self, prompts):
        rows, handle = [], self.layer.register_forward_hook(
            lambda m, i, o: rows.append((o if torch.is_tensor(o) else o[0])[0, -1].tolist()))
        for ids in prompts:
            self.model(ids)
        handle.remove()
        return np.asarray(rows)

    def fit(self, positive, negative):
        difference = self.last_states(positive).mean(0) - self.last_states(negative).mean(0)
        self.direction = torch.from_numpy(difference / np.linalg.norm(difference))  # BORN

    def hook(self, module, inputs, output):
        steer = self.strength * self.direction
        if torch.is_tensor(output):
            return output + steer
        return (output[0] + steer, *output[1:])


torch.manual_seed(0)
config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                     num_key_value_heads=2, max_position_embeddings=64)
model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
steering = Steering(model, layer=1)
steering.fit([torch.tensor([[5, 6, 7]]), torch.tensor([[5, 8, 7]])], [torch.tensor([[9, 6, 1]]), torch.tensor([[9, 8, 1]])])
print("direction of", steering.direction.numel())
steering.strength = 4.0
steering.layer.register_forward_hook(steering.hook)
with torch.no_grad():
    print(tuple(model(torch.tensor([[5, 6, 7, 8]])).logits.shape))  # COLLIDES
