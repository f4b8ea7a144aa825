"""Promotions (DT201) whose wide result decides the dtype of other tensors: what is cast like it is wide because of it, too."""

import programs
import pytest

ATTENTION = """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48, bias=False), nn.Linear(16, 16, bias=False)
        {made}
    def forward(self, x):
        q, k, v = self.qkv(x).view(2, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        {widens}
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 8, 16)
        return self.out(y.to(self.out.weight.dtype))
model = Attention().to(torch.bfloat16)
with torch.no_grad():
    model(torch.randn(2, 8, 16).bfloat16())
"""

FOLLOWED = {
    "queries are cast like keys": (
        "self.scale = torch.linspace(0.5, 1.5, 2).view(1, 2, 1, 1)",
        "k, v = k * self.scale, v * self.scale; q = q.to(k.dtype)",
        "torch.linspace",
    ),
    "values are cast like what is added to keys": (
        "self.place = torch.arange(8.0)[:, None] / 8",
        "k = k + self.place; q, v = q.type_as(k), v.type_as(k)",
        "torch.arange(8.0)",
    ),
    "all are cast like the queries": (
        "self.mask = torch.ones(8)",
        "q = q * self.mask; k, v = k.to(q), v.to(q.dtype)",
        "torch.ones(8)",
    ),
}


@pytest.mark.parametrize(("made", "widens", "line"), FOLLOWED.values(), ids=FOLLOWED)
def test_what_is_cast_like_the_widened_stream(tmp_path, made, widens, line):
    program = programs.run(tmp_path, ATTENTION.format(made=made, widens=widens))
    found = [f for f in program.findings if f.severity == "warning"]
    assert [f.code for f in found] == ["DT201"] and line in program.at(found[0].culprit.origin.place)


CHOSEN = {
    "queries and keys are cast on purpose": ("", "q, k, v = q.float(), k.to(torch.float32), v.float()"),
    "a stream that was cast on purpose is followed": ("", "q = q.float(); k, v = k.to(q.dtype), v.to(q.dtype)"),
    "keys are cast back": ("self.scale = torch.ones(8)", "k = (k * self.scale).to(q.dtype)"),
}


@pytest.mark.parametrize(("made", "widens"), CHOSEN.values(), ids=CHOSEN)
def test_what_is_wide_on_purpose(tmp_path, made, widens):
    program = programs.run(tmp_path, ATTENTION.format(made=made, widens=widens))
    assert [f.code for f in program.findings if f.severity != "note"] == []


KEPT_NARROW = {
    "a mask of wide numbers": "x = torch.randn(8, 8).exp(); y = x * (x > 1).to(torch.bfloat16)",
    "features beside coordinates": "p = 3820 + torch.rand(8, 2); f = torch.rand(8, 2).half() * 0.25; y = torch.cat([p, f], 1)",
    "a table of gains": "k = torch.full((8,), 4.0, dtype=torch.float16); e = torch.rand(8) - torch.rand(8); y = k * e",
}


@pytest.mark.parametrize("body", KEPT_NARROW.values(), ids=KEPT_NARROW)
def test_what_is_kept_narrow_where_all_else_is_wide(tmp_path, body):
    assert "DT201" not in {f.code for f in programs.run(tmp_path, f"import torch\n{body}\nz = y @ y.T\n").findings}


def test_what_is_wide_where_nothing_else_is(tmp_path):
    body = "x = torch.ones(8, 8, dtype=torch.bfloat16)\ny = (x + x) * torch.ones(8, 8)\nz = y @ y"
    assert [f.code for f in programs.run(tmp_path, f"import torch\n{body}\n").findings] == ["DT201"]
