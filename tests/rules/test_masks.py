"""A mask that is added swallows the scores of rows that are masked as a whole: nobody uses them."""

from __future__ import annotations

import programs
import pytest
from followed import follow

ATTENTION = """
torch.manual_seed(0)
embed, net, out = nn.Embedding(9, 16), nn.Linear(16, 48), nn.Linear(16, 9)
for _ in range(3):
    tokens = torch.randint(1, 9, (6, 10))
    tokens[:3, :6] = 0
    allowed = torch.ones(10, 10).tril().bool() & (tokens != 0)[:, None, :]
    q, k, v = net(embed(tokens) * 3).chunk(3, -1)
    scores = q @ k.transpose(1, 2) + {added}
    mixed = torch.softmax(scores, -1) @ v
    print(out(mixed).square().mean().item())
"""
MASK = "(1.0 - allowed.float()) * -1e9"
LEARNT = "net.bias.detach()[0].abs() * 1e10"


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(("added", "codes"), [(MASK, []), (LEARNT, ["DT308"])], ids=["mask", "learnt"])
def test_only_what_is_no_mask_may_not_swallow_scores(added, codes, reference, tmp_path):
    program = programs.run(tmp_path, ATTENTION.format(added=added), numerics=True, reference=reference)
    assert [f.code for f in program.findings if f.severity != "note"] == codes


ENTERS = """
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
    def forward(self, x, mask):
        q, k, v = self.net(x).chunk(3, -1)
        scores = (q @ k.transpose(1, 2)).float()
        mixed = {mixed}
        return self.out(mixed.to(x.dtype))
net = Attention().to(torch.{dtype})
causal = torch.full((10, 10), torch.finfo(torch.float32).min).triu(1)
with torch.no_grad():
    made = [net(torch.randn(2, 10, 16).to(torch.{dtype}), causal.to(torch.{dtype})) for _ in range(3)]
print(sum(made).float().mean().item())
"""
SOFTMAX = "torch.softmax(scores + mask, -1) @ v.float()"


@pytest.mark.parametrize(
    ("dtype", "mixed", "warned"),
    [
        ("bfloat16", SOFTMAX, False),
        ("float16", SOFTMAX, False),
        ("bfloat16", "(scores + mask).exp() @ v.float() * 1e-3", False),
        ("bfloat16", "(scores + mask * 1e-9) @ v.float()", True),
    ],
)
def test_a_mask_that_is_cast_to_infinities_before_it_enters_a_model(dtype, mixed, warned, tmp_path):
    program = programs.run(tmp_path, ENTERS.format(dtype=dtype, mixed=mixed), numerics=True)
    assert any(f.code == "DT301" and f.severity != "note" for f in program.findings) == warned


PRUNED = """
layer = nn.Linear(64, 64, bias=False).half()
for _ in range(6):
    kept = layer.weight.abs() > 0.01
    with torch.no_grad():
        {written}
"""
KEEPS = {
    "a cast": "layer.weight.mul_(kept.float())",
    "a cast that is moved": "layer.weight *= kept.t().to(torch.float32).t()",
    "a cast by another name": "layer.weight.data.mul_(kept.type(torch.float32))",
}


@pytest.mark.parametrize("how", KEEPS)
def test_what_is_multiplied_by_truth_values_loses_no_digits(how, tmp_path):
    program = programs.run(tmp_path, PRUNED.format(written=KEEPS[how]), numerics=True)
    assert program.error is None and not [f for f in program.findings if f.code == "DT203"]


@pytest.mark.parametrize("written", ["layer.weight.mul_(kept.float() * 0.999)", "layer.weight.add_(kept.float())"])
def test_what_is_scaled_or_added_up_does(written, tmp_path):
    program = programs.run(tmp_path, PRUNED.format(written=written), numerics=True)
    assert "DT203" in {f.code for f in program.findings}


BRACKETS = {
    "between two limits": ("x > 0.2 & x < 0.8", "(x > 0.2) & (x < 0.8)"),
    "a class or a small score": ("labels == 3 | x < 0.5", "(labels == 3) | (x < 0.5)"),
    "a mask and a score": ("seen & x > 0.2", "seen & (x > 0.2)"),
    "three of them, over lines": (
        "~((x * 2) > 0.2 & (x + 1) < 1.8\n    & x != 1)",
        "~(((x * 2) > 0.2) & ((x + 1) < 1.8) & (x != 1))",
    ),
}
SCORES = """
x, labels = torch.rand(8), torch.arange(8)
seen = x > 0.5
keep = CONDITION
print(keep.sum())
"""


@pytest.mark.parametrize(("condition", "bracketed"), BRACKETS.values(), ids=BRACKETS)
def test_comparisons_that_lack_their_brackets(condition, bracketed, tmp_path):
    followed = follow(tmp_path, SCORES.replace("CONDITION", condition), rounds=1)
    assert followed.clean and f"keep = {bracketed}\n" in followed.text


@pytest.mark.parametrize("condition", ["x != 0 & x", "(x & 3) == 1", "labels == (3 & x)"])
def test_what_no_brackets_mend_gets_none(condition, tmp_path):
    finding = programs.run(tmp_path, SCORES.replace("CONDITION", condition)).findings[0]
    assert finding.code == "DT109" and "bracket" not in finding.fix.why
