"""
title: Newton-Schulz orthogonalises in bfloat16 and the fp32 second-momentum buffer of NorMuon refuses the row means
expect: collision
thread: https://github.com/zichongli5/NorMuon/issues/7
fix_at: 40, 41

Expectation, written first: zeropower_via_newtonschulz5 casts the momentum to bfloat16 for speed and hands its result back in bfloat16
although the parameter is float32. The row means taken from that update are bfloat16 too, and lerp_ on the float32 second-momentum
buffer raises two calls later.
"""
import torch
import torch.nn.functional as F
from torch import nn

def zeropower_via_newtonschulz5(G, steps):
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
    update = grad.lerp(momentum, beta) if nesterov else momentum
    original_shape = None
    if update.ndim == 4:
        original_shape = update.shape
        update = update.reshape(update.size(0), -1)
    update = zeropower_via_newtonschulz5(update, steps=ns_steps)  # BORN
    if original_shape is not None:
        update = update.reshape(original_shape)
    vnorm = update.norm(dim=(-2, -1), keepdim=True)
    v_mean = torch.mean(update * update, dim=-1, keepdim=True)
    second_momentum.lerp_(v_mean, 1 - beta2)  # COLLIDES
    step_size = 1 / second_momentum.sqrt().add_(1e-10)
    update = update * step_size
    vnorm_new = update.norm(dim=(-2, -1), keepdim=True)
    update = update * (vnorm / vnorm_new.add_(1e-10))
    return update * max(1, grad.size(-2) / grad.size(-1)) ** 0.5

class SingleDeviceNorMuon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, weight_decay=0.0, momentum=0.95, beta2=0.95):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, beta2=beta2))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["momentum_buffer"] = torch.zeros_like(p)
                    state["second_momentum_buffer"] = torch.zeros_like(p[..., 0:1])
                update = normuon_update(p.grad, state["momentum_buffer"], state["second_momentum_buffer"],
                                        beta=group["momentum"], beta2=group["beta2"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update.reshape(p.shape), alpha=-group["lr"])

class TinyMLP(nn.Module):
    def __init__(self, dim=16, hidden=32, classes=4):
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, classes, bias=False)

    def forward(self, x):
        return self.down(F.relu(self.up(x)).square())

def main():
    torch.manual_seed(0)
    model = TinyMLP()
    optimizer = SingleDeviceNorMuon(model.parameters(), lr=0.02, weight_decay=0.01)
    x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
    for step in range(20):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")

if __name__ == "__main__":
    main()
