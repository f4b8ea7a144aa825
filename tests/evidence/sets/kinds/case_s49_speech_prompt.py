"""
title: a speech projector is trained in float32, its tokens are put before the text of a frozen bfloat16 language model
expect: collision
needs: transformers
fix_at: 30

After https://github.com/X-LANCE/SLAM-LLM/issues/86 and https://github.com/haotian-liu/LLaVA/issues/1256.
Right: the projected tokens are cast to the dtype of the text embeddings.
"""
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(32)


class SpeechModel(nn.Module):
    def __init__(self, llm, frames=20):
        super().__init__()
        self.llm = llm.requires_grad_(False)
        dim = llm.config.hidden_size
        self.projector = nn.Sequential(nn.Linear(frames, dim), nn.GELU(), nn.Linear(dim, dim))

    def prompt(self, speech):
        return self.projector(speech)  # BORN

    def forward(self, speech, ids):
        tokens = self.prompt(speech)
        text = self.llm.get_input_embeddings()(ids)
        joined = torch.cat([tokens, text], dim=1)
        labels = torch.cat([ids.new_full(tokens.shape[:2], -100), ids], dim=1)
        return self.llm(inputs_embeds=joined, labels=labels).loss  # COLLIDES


def language_model(dtype):
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2)
    return LlamaForCausalLM(config).to(dtype)


model = SpeechModel(language_model(torch.bfloat16))
optimizer = torch.optim.AdamW(model.projector.parameters(), lr=1e-3)
for step in range(2):
    loss = model(torch.randn(2, 5, 20), torch.randint(0, 64, (2, 7)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
