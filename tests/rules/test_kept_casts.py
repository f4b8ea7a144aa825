"""A cast of a parameter that is made once is no parameter, and does not learn (DT304)."""

from __future__ import annotations

import programs
import pytest

TRAINED = """
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        {made}
    def forward(self, x):
        return x + {used} * self.body(x)
torch.manual_seed(0)
model = Gated()
{before}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    loss = {loss}
    optimizer.zero_grad()
    loss.backward({backward})
    optimizer.step()
"""


def trained(made="pass", used="1", before="", loss="model(torch.randn(4, 8)).square().mean()", backward=""):
    return TRAINED.format(made=made, used=used, before=before, loss=loss, backward=backward)


KEPT = {
    "a gate": trained("self.gate = nn.Parameter(torch.zeros(1)).to(torch.bfloat16)", "self.gate"),
    "a method": trained("self.scale = nn.Parameter(torch.ones(8)).half()", "self.scale.float()"),
    "a list": trained("self.all = [nn.Parameter(torch.ones(8)).double()]", "self.all[0].float()"),
    "a weight that is trained": trained(
        before="narrow = model.body.weight.bfloat16()",
        loss="F.linear(torch.randn(4, 8).bfloat16(), narrow).float().square().mean() + model(torch.randn(4, 8)).mean()",
    ),
}
HEALTHY = {
    "cast in each pass": trained("self.gate = nn.Parameter(torch.zeros(1))", "self.gate.to(torch.bfloat16)"),
    "cast before": trained("self.gate = nn.Parameter(torch.zeros(1).to(torch.bfloat16))", "self.gate"),
    "no gradient": trained(
        "self.gate = nn.Parameter(torch.ones(1), requires_grad=False).to(torch.bfloat16)", "self.gate"
    ),
    "a picture whose gradient is asked for": """
model = nn.Linear(8, 4)
picture = torch.randn(2, 8, requires_grad=True)
narrow = picture.bfloat16()
maps = [torch.autograd.grad(model(narrow.float())[:, n].sum(), picture)[0] for n in range(4)]
""",
    "one pass, several losses": """
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = F.linear(torch.randn(2, 8).bfloat16(), model.weight.bfloat16()).float().mean(0)
for n in range(4):
    losses[n].backward(retain_graph=True)
    optimizer.step()
""",
}


def found(tmp_path, text):
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None, program.error
    return [program.at(f.site) for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_a_cast_that_is_kept(text, tmp_path):
    lines = found(tmp_path, text)
    assert len(lines) == 1 and any(word in lines[0] for word in (".to(", ".half(", ".double(", ".bfloat16(")), lines


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_casts_that_are_made_anew_or_train_nothing(text, tmp_path):
    assert found(tmp_path, text) == []
