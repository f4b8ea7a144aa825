"""Parameters that no gradient reaches: what cuts them off is named, and only a dtype is called harm."""

from __future__ import annotations

import programs
import pytest

PROGRAM = """
torch.manual_seed(0)
model = nn.ModuleDict(dict(first=nn.Linear(8, 4), also=nn.Linear(8, 4), last=nn.Linear(4, 8)))
first, also, last = model["first"], model["also"], model["last"]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(5, 8)
    BODY
    (last(h) - x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("body", "severity", "at", "said"),
    [
        ("h = first(x) + (also(x) * 8).to(torch.int8).float()", "warning", "also(x)", "float32 becomes int8"),
        ("h = first(x) + also(x).detach()", "note", "also(x)", "`detach` cuts the graph: no gradient"),
        ("h = first(x) + also(x).data", "note", "also(x)", "cuts the graph: no gradient"),
        ("h = first(x) + torch.no_grad()(also)(x)", "note", "also(x)", "`linear` records no graph here"),
        ("h, unread = first(x), also(x)", "note", "also(x)", "backward() started from tensors that were not computed from it"),
        ("h = first(x)", "note", "optimizer.step()", "no op of the watched forward passes used it"),
        ("h = first(x) + also(x).detach() + F.linear(x, also.weight, also.bias)", None, None, None),
        ("h = first(x) + also(x)", None, None, None),
    ],
)  # fmt: skip
def test_what_cuts_a_parameter_off(tmp_path, body, severity, at, said):
    body = body.replace("torch.no_grad()(also)(x)", "torch.no_grad()(lambda: also(x))()")
    p = programs.run(tmp_path, PROGRAM.replace("BODY", body), numerics=True)
    assert p.error is None
    if severity is None:
        assert p.findings == ()
        return
    f = p.only
    assert (f.code, f.severity, f.count) == ("DT305", severity, 2)
    assert [(o.shape, o.dtype) for o in f.operands if o.holder == "parameter"] == [
        ((4, 8), "float32"),
        ((4,), "float32"),
    ]
    assert said in f.flow[-1].said and at in p.at(f.site)


def test_layers_behind_one_line_are_reported_together(tmp_path):
    text = PROGRAM.replace("also=nn.Linear(8, 4)", "also=nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))")
    p = programs.run(
        tmp_path,
        text.replace("BODY", "with torch.no_grad(): frozen = also(x)\n    h = first(x) + frozen"),
        numerics=True,
    )
    assert (p.only.code, p.only.count, p.only.severity) == ("DT305", 4, "note")
