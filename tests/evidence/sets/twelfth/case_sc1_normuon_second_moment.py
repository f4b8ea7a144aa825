"""
title: the normalized Muon keeps its second moment in float32, the orthogonalized update comes back in bfloat16
expect: collision
thread: https://github.com/zichongli5/NorMuon/issues/7
fix_at: 18, 25, 31, 33, 34

Expectation, written first: the Newton-Schulz iteration works in bfloat16 and returns it; the row means of its squares
are blended into a float32 buffer with lerp_, which wants the same dtype on both sides.
"""
from argparse import Namespace

import torch
from torch import nn


def zeropower_via_newtonschulz5(G, steps):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.bfloat16()  # BORN
    if G.size(-2) > G.size(-1):
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if G.size(-2) > G.size(-1) else X


def normuon_update(grad, momentum, second_momentum, beta=0.95, beta2=0.95, ns_steps=5):
    momentum.lerp_(grad, 1 - beta)
    update = grad.lerp(momentum, beta)
    update = zeropower_via_newtonschulz5(update, ns_steps)
    before = update.norm()
    v_mean = update.square().mean(dim=-1, keepdim=True)
    second_momentum.lerp_(v_mean, 1 - beta2)  # COLLIDES
    update = update * second_momentum.sqrt().add(1e-10).reciprocal()
    update = update * (before / (update.norm() + 1e-10))
    return update * max(1, grad.size(-2) / grad.size(-1)) ** 0.5


class NorMuonWithAuxAdam(torch.optim.Optimizer):
    def __init__(self, param_groups, lr=0.02, weight_decay=0.0):
        super().__init__(param_groups, dict(lr=lr, weight_decay=weight_decay))

    def init_state(self, p, use_muon):
        state = self.state[p]
        if not state:
            state["first"] = torch.zeros_like(p)
            state["second"] = torch.zeros_like(p[..., 0:1] if use_muon else p)
        return state

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.init_state(p, group["use_muon"])
                if group["use_muon"]:
                    update = normuon_update(p.grad, state["first"], state["second"])
                else:
                    state["first"].lerp_(p.grad, 0.1)
                    state["second"].lerp_(p.grad.square(), 0.05)
                    update = state["first"] / (state["second"].sqrt() + 1e-8)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update.reshape(p.shape).to(p.dtype), alpha=-group["lr"])


class CharModel(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(2))
        self.head = nn.Linear(dim, vocab)

    def forward(self, idx):
        x = self.embed(idx)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def build_optimizer(model, args):
    matrices = [p for p in model.blocks.parameters() if p.ndim >= 2]
    ids = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in ids]
    return NorMuonWithAuxAdam([
        dict(params=matrices, use_muon=True, lr=args.muon_lr), dict(params=others, use_muon=False, lr=args.adam_lr),
    ], weight_decay=args.weight_decay)


def main(args):
    torch.manual_seed(args.seed)
    text = torch.tensor([ord(c) % 64 for c in "to be or not to be that is the question " * 8])
    model = CharModel(64, 32)
    optimizer = build_optimizer(model, args)
    for _ in range(args.steps):
        start = torch.randint(0, len(text) - 17, (8,))
        window = torch.stack([text[s : s + 17] for s in start])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(window[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), window[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")


main(Namespace(seed=0, steps=10, muon_lr=0.02, adam_lr=3e-3, weight_decay=0.01))
