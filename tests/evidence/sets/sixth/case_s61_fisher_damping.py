"""
title: TRPO's Fisher product is damped by a float64 vector from numpy, the conjugate gradient then cannot dot it
expect: collision
fix_at: 26

After https://github.com/bqth29/simulated-bifurcation-algorithm/issues/36 and https://github.com/scikit-learn-contrib/skglm/pull/170.
Right: the damping is made in the dtype of the parameters.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.manual_seed(602)


class Damping:
    """More damping for the output layer: one number per parameter."""

    def __init__(self, model, inner=0.01, outer=0.1):
        counts = [(p.numel(), outer if name.startswith("out") else inner) for name, p in model.named_parameters()]
        self.weights = torch.from_numpy(np.concatenate([np.full(n, value) for n, value in counts]))  # BORN

    def __call__(self, vector):
        return self.weights * vector


def conjugate_gradient(product, b, steps=8, tolerance=1e-10):
    x, r = torch.zeros_like(b), b.clone()
    p, rr = r.clone(), r @ r
    for _ in range(steps):
        q = product(p)
        alpha = rr / torch.dot(p, q)  # COLLIDES
        x, r = x + alpha * p, r - alpha * q
        new = r @ r
        if new < tolerance:
            break
        p, rr = r + new / rr * p, new
    return x


class Policy(nn.Module):
    def __init__(self, states=6, actions=3):
        super().__init__()
        self.hidden, self.out = nn.Linear(states, 16), nn.Linear(16, actions)

    def forward(self, x):
        return F.log_softmax(self.out(torch.tanh(self.hidden(x))), dim=-1)


def fisher_product(policy, states, damping):
    def product(vector):
        logp = policy(states)
        kl = (logp.detach().exp() * (logp.detach() - logp)).sum(-1).mean()
        grads = torch.autograd.grad(kl, policy.parameters(), create_graph=True)
        flat = torch.cat([g.reshape(-1) for g in grads])
        second = torch.autograd.grad(flat @ vector, policy.parameters())
        return torch.cat([g.reshape(-1) for g in second]).detach() + damping(vector)
    return product


policy = Policy()
damping = Damping(policy)
for update in range(3):
    states = torch.randn(128, 6)
    with torch.no_grad():
        actions = torch.distributions.Categorical(logits=policy(states)).sample()
    advantage = (actions == states[:, :3].argmax(-1)).float() - 0.3
    gain = (policy(states).gather(1, actions[:, None])[:, 0] * advantage).mean()
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(gain, policy.parameters())])
    step = conjugate_gradient(fisher_product(policy, states, damping), gradient)
    with torch.no_grad():
        vector_to_parameters(parameters_to_vector(policy.parameters()) + 0.5 * step, policy.parameters())
print("gain", round(gain.item(), 3))
