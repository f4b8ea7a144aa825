"""
title: NorMuon lerps a bfloat16 row mean from Newton-Schulz into a float32 second momentum
expect: collision
thread: https://github.com/zichongli5/NorMuon/issues/7

Expectation, written first: the parameters and both momentum buffers are float32. The Newton-Schulz iteration casts the
gradient to bfloat16 and returns it so, the row mean v_mean inherits that, and lerp_ demands that its end has the dtype
of self. The iteration should return the input's dtype or v_mean be widened.
"""
import torch
import torch.nn as nn


def zeropower_via_newtonschulz5(G, steps=5):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.bfloat16()  # BORN
    if G.size(-2) > G.size(-1):
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        B = b * A + c * A @ A
        X = a * X + B @ X
    if G.size(-2) > G.size(-1):
        X = X.mT
    return X  # BORN


def normuon_update(grad, momentum, second_momentum, beta=0.95, beta2=0.95, ns_steps=5, nesterov=True):
    momentum.lerp_(grad, 1 - beta)
    update = grad.lerp_(momentum, beta) if nesterov else momentum
    update = zeropower_via_newtonschulz5(update, steps=ns_steps)  # BORN
    vnorm = update.norm(dim=(-2, -1), keepdim=True)
    v_mean = torch.mean(update * update, dim=-1, keepdim=True)  # BORN
    second_momentum.lerp_(v_mean, 1 - beta2)  # BORN COLLIDES
    step_size = 1 / second_momentum.sqrt().add_(1e-10)
    update.mul_(step_size)
    vnorm_new = update.norm(dim=(-2, -1), keepdim=True)
    update.mul_(vnorm / (vnorm_new.add_(1e-10)))
    return update * max(1, grad.size(-2) / grad.size(-1)) ** 0.5


class SingleDeviceNorMuon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, weight_decay=0, momentum=0.95, beta2=0.95):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, beta2=beta2))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["momentum_buffer"] = torch.zeros_like(p)
                    state["second_momentum_buffer"] = torch.zeros_like(p[..., 0:1])
                buffers = (state["momentum_buffer"], state["second_momentum_buffer"])
                update = normuon_update(p.grad, *buffers, beta=group["momentum"], beta2=group["beta2"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update.reshape(p.shape), alpha=-group["lr"])


class CharLM(nn.Module):
    def __init__(self, vocab=40, dim=32):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocab, dim), nn.Linear(dim, vocab)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.blocks = nn.Sequential(nn.Linear(dim, 64, bias=False), nn.GELU(), nn.Linear(64, dim, bias=False))

    def forward(self, idx):
        h, _ = self.mix(self.embed(idx))
        return self.head(h + self.blocks(h))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = CharLM()
    hidden = [p for p in model.blocks.parameters() if p.ndim >= 2]
    others = [p for n, p in model.named_parameters() if not n.startswith("blocks")]
    optimizers = [SingleDeviceNorMuon(hidden, lr=0.02), torch.optim.AdamW(others, lr=3e-4)]
    for step in range(4):
        x = torch.randint(0, 40, (8, 17))
        loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        loss.backward()
        for opt in optimizers:
            opt.step()
            opt.zero_grad()
        print(step, loss.item())
