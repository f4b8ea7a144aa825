"""Decay whose factor is 1 in the dtype of the weights, while the optimizer's steps arrive; and decay that arrives, or
is too little to matter."""

from __future__ import annotations

import programs
import pytest

_TRAINED = """
class Trains(torch.optim.Optimizer):
    def __init__(self, params, lr=5e-2, decay={decay}):
        super().__init__(params, dict(lr=lr, decay=decay))
        self.random = torch.Generator().manual_seed(0)

    def stochastic_(self, p, new):
        bits = new.view(torch.int32)
        noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32, generator=self.random)
        p.copy_(((bits + noise) & -65536).view(torch.float32))

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        factor = 1 - group["decay"]
        for p in group["params"]:
            {decays}

torch.manual_seed(0)
model = nn.Linear(32, 8, bias=False).to(torch.{dtype})
optimizer = Trains(model.parameters())
for _ in range({steps}):
    x = torch.randn(64, 32)
    loss = (F.linear(x, model.weight.float()) - x[:, :8]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_WAYS = {
    "in place": "p.mul_(factor); p.copy_(p.float() - group['lr'] * p.grad.float().sign())",
    "through data": "p.data.mul_(factor); p.data.copy_(p.data.float() - group['lr'] * p.grad.float().sign())",
    "of a list": "torch._foreach_mul_([p], factor); p.copy_(p.float() - group['lr'] * p.grad.float().sign())",
    "of a copy": "self.stochastic_(p, (p * factor).float() - group['lr'] * p.grad.float().sign())",
}


def found(tmp_path, decays, *, decay=1e-3, dtype="bfloat16", steps=80):
    text = _TRAINED.format(decay=decay, decays=decays, dtype=dtype, steps=steps)
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None
    return [(f.code, program.at(f.culprit.origin.place)) for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("decays", _WAYS.values(), ids=_WAYS)
def test_a_decay_that_never_acts_is_a_lost_update(decays, tmp_path):
    ((code, born),) = found(tmp_path, decays)
    assert code == "DT307" and ".to(torch.bfloat16)" in born


@pytest.mark.parametrize("decays", _WAYS.values(), ids=_WAYS)
@pytest.mark.parametrize(
    "other", [{"decay": 0.02}, {"decay": 0.0}, {"dtype": "float32"}, {"decay": 1e-5}, {"steps": 20}], ids=str
)
def test_decay_that_arrives_or_is_little(decays, other, tmp_path):
    assert found(tmp_path, decays, **other) == []


def test_a_factor_near_1_of_what_is_not_kept(tmp_path):
    text = """
    x, total = torch.randn(64).bfloat16(), 0.0
    for _ in range(600):
        total += (x * 0.999).float().sum().item()
    """
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    assert [f for f in program.findings if f.severity != "note"] == []


def test_the_decay_of_a_state_is_not_that_of_the_weights(tmp_path):
    """AdamW's second moment has such a factor, too, and its decay of the weights is one in a hundred thousand."""
    text = """
    model = nn.Sequential(nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 8)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=2e-3)
    for _ in range(120):
        x = torch.randn(64, 32).bfloat16()
        loss = (model(x) - x[:, :8]).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    assert [f for f in program.findings if f.code == "DT307"] == []
