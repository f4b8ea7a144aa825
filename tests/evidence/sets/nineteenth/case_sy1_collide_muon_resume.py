"""
title: resuming Muon from a checkpoint in bf16: lerp_ of a float momentum buffer with bf16 gradients
expect: collision
thread: https://github.com/deepspeedai/DeepSpeed/issues/7746
fix_at: 31 (the second lerp, if the gradient is cast)

Expectation, written first: the engine writes optimizer state to the checkpoint in float32 and hands it back into optimizer.state as it was
read, so after a resume the momentum buffer is float32 while weights and gradients are bfloat16. momentum.lerp_(grad) is refused. The buffer
must keep its dtype in the checkpoint, be cast to the parameter's at the load, or the gradient be cast in the update.
"""
import io

import torch
import torch.nn as nn


def zeropower_via_newtonschulz5(G, steps=5):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.bfloat16()
    if G.size(-2) > G.size(-1):
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if G.size(-2) > G.size(-1) else X


def muon_update(grad, momentum, beta=0.95, ns_steps=5, nesterov=True):
    momentum.lerp_(grad, 1 - beta)  # BORN COLLIDES
    update = grad.lerp_(momentum, beta) if nesterov else momentum
    update = zeropower_via_newtonschulz5(update, steps=ns_steps)
    return update * max(1, grad.size(-2) / grad.size(-1)) ** 0.5


class SingleDeviceMuon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, weight_decay=0.0, momentum=0.95):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["momentum_buffer"] = torch.zeros_like(p)
                update = muon_update(p.grad, state["momentum_buffer"], beta=group["momentum"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update.reshape(p.shape), alpha=-group["lr"])


class Engine:
    def __init__(self, model, config):
        self.module = model.bfloat16() if config["bf16"]["enabled"] else model
        self.optimizer = SingleDeviceMuon(self.module.parameters(), lr=config["optimizer"]["params"]["lr"])

    def train_step(self, x, y):
        loss = ((self.module(x) - y) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def save_checkpoint(self, f):
        states = [{k: v.float().cpu() for k, v in self.optimizer.state[p].items()} for p in self.module.parameters()]  # BORN
        torch.save({"module": self.module.state_dict(), "optimizer_states": states}, f)

    def load_checkpoint(self, f):
        ckpt = torch.load(f)
        self.module.load_state_dict(ckpt["module"])
        for p, saved in zip(self.module.parameters(), ckpt["optimizer_states"]):
            self.optimizer.state[p] = {k: v.to(p.device) for k, v in saved.items()}  # BORN


def main():
    torch.manual_seed(0)
    config = {"bf16": {"enabled": True}, "optimizer": {"type": "Muon", "params": {"lr": 1e-3}}}
    x, y = torch.randn(16, 64).bfloat16(), torch.randn(16, 4).bfloat16()
    engine = Engine(nn.Linear(64, 4, bias=False), config)
    print("loss", engine.train_step(x, y), engine.train_step(x, y))
    buf = io.BytesIO()
    engine.save_checkpoint(buf)
    buf.seek(0)
    resumed = Engine(nn.Linear(64, 4, bias=False), config)
    resumed.load_checkpoint(buf)
    print("resumed", resumed.train_step(x, y))


if __name__ == "__main__":
    main()
