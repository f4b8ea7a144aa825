"""
title: the gate of an adapter is cast to bf16 right after it is made a Parameter
expect: silent:never-trained|frozen
thread: https://github.com/pytorch/pytorch/issues/17484
measured: gate 0.000, loss 6.582, test accuracy 21%
widened: gate 0.097, loss 0.532, test accuracy 57%

Expectation, written first: the cast returns a plain tensor, the attribute is no parameter of the module and the
optimizer never sees it; the gate stays zero and with it the whole adapter has no gradient. The projection in bf16
trains well enough.
"""
import torch
import torch.nn.functional as F
from torch import nn
from transformers import BertConfig, BertModel


class GatedAdapter(nn.Module):
    """side branch that starts switched off, as in Flamingo's gated layers"""

    def __init__(self, dim, hidden=64):
        super().__init__()
        self.down = nn.Linear(dim, hidden, dtype=torch.bfloat16)
        self.up = nn.Linear(hidden, dim, dtype=torch.bfloat16)
        self.gate = nn.Parameter(torch.zeros(1)).to(torch.bfloat16)  # BORN

    def forward(self, x):
        side = self.up(F.gelu(self.down(x.to(torch.bfloat16))))
        return x + (self.gate.tanh() * side).to(x.dtype)


class AdaptedEncoder(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        config = BertConfig(
            vocab_size=100, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
            max_position_embeddings=24, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.2,
        )
        self.backbone = BertModel(config, add_pooling_layer=False).eval().requires_grad_(False)
        self.adapter = GatedAdapter(config.hidden_size)
        self.register_buffer("prototypes", torch.randn(classes, config.hidden_size))

    def forward(self, ids):
        hidden = self.backbone(input_ids=ids).last_hidden_state
        return self.adapter(hidden).mean(1) @ self.prototypes.T


class TopicData:
    """the topic is the decade most of the tokens come from"""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 6, (n,), generator=g)
        own = self.y[:, None] * 15 + torch.randint(0, 15, (n, 16), generator=g)
        other = torch.randint(0, 100, (n, 16), generator=g)
        self.ids = torch.where(torch.rand(n, 16, generator=g) < 0.7, own, other)

    def batches(self, size):
        for lo in range(0, len(self.y), size):
            yield self.ids[lo : lo + size], self.y[lo : lo + size]


def optimizer_for(model):
    trainable = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trainable, lr=1e-2, weight_decay=0.0)


def train(model, data, epochs=6):
    opt = optimizer_for(model)
    for _ in range(epochs):
        for ids, y in data.batches(32):
            loss = F.cross_entropy(model(ids).float(), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return loss.item()


@torch.no_grad()
def accuracy(model, data):
    return torch.cat([model(i).argmax(-1) == y for i, y in data.batches(64)]).double().mean().item()


torch.manual_seed(5)
model = AdaptedEncoder()
loss = train(model, TopicData(512, 1))
print(f"gate {model.adapter.gate.item():.3f}, loss {loss:.3f}, test accuracy {100 * accuracy(model, TopicData(256, 2)):.0f}%")
