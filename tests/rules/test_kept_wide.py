"""The change for values that leave the range of float16: an edit where nothing objects to it, and then it helps."""

from __future__ import annotations

import programs
import pytest
import torch

from dtypetrace.source.patch import Patch

CACHED = """
import torch
torch.manual_seed(0)
dtype = torch.float16
energy = torch.rand(4, 8) * 1e6
cached = CAST
AFTER
"""
FEATURES = "features = cached.float() / cached.float().amax(dim=-1, keepdim=True)\nprint(features.sum().item())"


def ran(tmp_path, text: str, **options) -> programs.Program:
    program = programs.run(tmp_path, text, numerics=True, **options)
    assert program.error is None, program.error
    return program


def repaired(program: programs.Program) -> str:
    """The program's text with the edits of its only finding."""
    patch = Patch(program.with_text.text)
    patch.set(patch.locate(program.only.fix.edits))
    return patch.texts[program.file]


def cached(cast: str, after: str = FEATURES) -> str:
    return CACHED.replace("CAST", cast).replace("AFTER", after)


@pytest.mark.parametrize(
    ("cast", "wide"),
    [
        ("energy.to(torch.float16)", "energy.to(torch.float32)"),
        ("energy.half()", "energy.to(torch.float32)"),
        ("energy.to('cpu', dtype=torch.half)", "energy.to('cpu', dtype=torch.float32)"),
    ],
)
def test_a_cast_that_overflows_is_changed_in_its_own_call(cast, wide, tmp_path):
    program = ran(tmp_path, cached(cast))
    assert program.only.code == "DT301" and program.only.fix.why == "keep these values in float32"
    assert program.only.fix.checked == ("text", "dtype rules: nothing else is refused")
    again = repaired(program)
    assert again == program.text.replace(cast, wide)
    assert ran(tmp_path, again, name="again.py").findings == ()


@pytest.mark.parametrize(
    ("cast", "after"),
    [
        ("energy.to(dtype)", FEATURES),  # other casts may use the variable
        ("energy.half()", "nn.Linear(8, 2).half()(cached).float().sum().backward()"),  # would refuse float32
        ("energy.half()", "again = cached.half()\nprint((again.float() / again.float().amax()).sum().item())"),
        (
            "energy.half()",
            "kept = torch.zeros(4, 8).half()\nkept.copy_(cached)\nprint((kept / kept.amax()).sum().item())",
        ),
        ("energy.half()", "again = (cached.float() * 2 - 1).half()\nprint((again / again.amax()).sum().item())"),
    ],
    ids=["variable", "refused", "cast again", "stored", "cast after arithmetic"],
)
def test_a_cast_is_left_alone_where_something_objects(cast, after, tmp_path):
    found = next(f for f in ran(tmp_path, cached(cast, after)).findings if f.code == "DT301")
    assert found.fix.edits == () and found.fix.checked == () and "bfloat16" in found.fix.words


PRODUCT = """
import torch
torch.manual_seed(0)
q, k = torch.randn(2, 4, 3, 8) * 300, torch.randn(2, 4, 3, 8) * 300
SCORES
print((scores.float() / scores.float().abs().amax()).sum().item())
"""


@pytest.mark.parametrize(
    "scores",
    [
        "scores = q.half() @ k.half().transpose(-1, -2)",
        "scores = torch.einsum('bhqd,bhkd->bhqk', q.half(), k.half())",
        "scores = torch.matmul(q.to(torch.float16), k.to(torch.float16).mT)",
        "q, k = q.half().flatten(0, 1), k.half().flatten(0, 1)\nscores = torch.bmm(q, k.mT)",
        "narrow = q.half()\nkeys = k.half().permute(0, 1, 3, 2)\nscores = torch.matmul(narrow, keys)",
    ],
)
def test_both_operands_of_a_product_are_widened_together(scores, tmp_path):
    """The product prepares both of its operands by the same ops; one of them alone in float32 would be refused."""
    program = ran(tmp_path, PRODUCT.replace("SCORES", scores))
    assert program.only.code == "DT301" and len(program.only.fix.edits) == 2
    assert ran(tmp_path, repaired(program), name="again.py").findings == ()


MASKED = """
import torch
torch.manual_seed(0)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x, seen):
        scores = self.q(x) @ self.k(x).mT
        scores = WHERE
        return scores.softmax(-1) @ x
seen = torch.rand(4, 4) > 0.3
seen[2] = False
print(Attention().half()(torch.randn(4, 8).half(), seen).sum().item())
"""


@pytest.mark.parametrize(
    "where",
    [
        "torch.where(seen, scores, -1e9)",
        "torch.where(~seen, -1e5, scores)",
        "scores.where(seen, -70000.0)",
    ],
)
def test_a_number_that_a_call_makes_a_tensor_of_is_the_call_s_own(where, tmp_path):
    """It is told once, at the call that takes it, and is not cast as a tensor."""
    program = ran(tmp_path, MASKED.replace("WHERE", where))
    assert (program.only.code, program.only.severity) == ("DT301", "warning")
    again = repaired(program)
    assert ").to(torch.float32)" not in again and again.count("scores.to(torch.float32)") == 1
    assert ran(tmp_path, again, name="again.py").findings == ()


def test_what_outgrows_float32_is_kept_in_float64(tmp_path):
    text = """
    import torch
    moments = torch.logspace(0, 40, 8, dtype=torch.float64)
    stored = moments.to(torch.float32)
    print((stored / stored.amax()).sum().item())
    """
    program = ran(tmp_path, text)
    assert program.only.code == "DT301" and program.only.fix.why == "keep these values in float64"
    again = repaired(program)
    assert again == program.text.replace("torch.float32", "torch.float64")
    assert ran(tmp_path, again, name="again.py").findings == ()


def test_a_call_is_left_alone_where_a_later_op_prepares_other_tensors_too(tmp_path):
    """torch expands both operands of the second product alike, in one recorded op: what becomes of each is not known."""
    text = """
    import torch
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 12, 64) * 200).half()
    scores = q @ k.transpose(-1, -2)
    print((scores.softmax(-1) @ v).sum().item())
    """
    assert ran(tmp_path, text).only.fix.edits == ()


SIZES = """
import torch
torch.manual_seed(0)
net, last = nn.Linear(8, 8).half(), nn.Linear(8, 2).half()
with torch.no_grad():
    x = net(torch.ones(4, 8).half() * 900)
    size = SQUARES
    print(THEN)
"""
SUMMED = "size.sqrt().sum().item()"


@pytest.mark.parametrize(
    ("squares", "wide"),
    [
        ("x.square().sum(-1, keepdim=True)", "x.to(torch.float32).square().sum(-1, keepdim=True)"),
        ("(x * x).sum(-1)", "(x.to(torch.float32) * x.to(torch.float32)).sum(-1)"),
        ("(x @ x.T).diagonal()", "(x.to(torch.float32) @ x.T.to(torch.float32)).diagonal()"),
    ],
    ids=["method", "two operands", "a product of matrices"],
)
def test_a_call_of_half_numbers_gets_its_operands_in_float32(squares, wide, tmp_path):
    program = ran(tmp_path, SIZES.replace("SQUARES", squares).replace("THEN", SUMMED))
    assert program.only.code == "DT301" and program.only.fix.why.startswith("compute ")
    again = repaired(program)
    assert again == program.text.replace(squares, wide)
    assert ran(tmp_path, again, name="again.py").findings == ()


GUIDED_BY_NUMBER = """
import torch
torch.manual_seed(0)

class Guide:
    def __init__(self, strength=900.0, power=0.5):
        self.strength, self.power = strength, power

    def __call__(self, y, other):
        return (MADE).float().abs().log().sum().item()

net = nn.Linear(8, 8).half()
with torch.no_grad():
    x = net(torch.ones(4, 8).half() * 900)
    print(Guide()(x, x * 0.25))
"""


@pytest.mark.parametrize(
    ("made", "wide"),
    [
        ("900.0 * y", "900.0 * y.to(torch.float32)"),
        ("self.strength * (y - other)", "self.strength * ((y - other).to(torch.float32))"),
        ("y * self.strength", "y.to(torch.float32) * self.strength"),
        ("self.strength / (1 - self.power ** 2) * y", "self.strength / (1 - self.power ** 2) * y.to(torch.float32)"),
    ],
)
def test_not_the_number_but_the_tensor_is_cast(made, wide, tmp_path):
    program = ran(tmp_path, GUIDED_BY_NUMBER.replace("MADE", made))
    assert program.only.code == "DT301"
    again = repaired(program)
    assert again == program.text.replace(made, wide)
    assert ran(tmp_path, again, name="again.py").findings == ()


def test_where_the_text_does_not_say_which_side_is_the_tensor_there_is_no_diff(tmp_path):
    text = GUIDED_BY_NUMBER.replace("MADE", "other * y").replace("(x, x * 0.25)", "(x, [900.0][0])")
    assert ran(tmp_path, text).only.fix.edits == ()


SHAPED = SIZES.replace("SQUARES", "x.square().sum(-1, keepdim=True)")


def test_a_result_is_cast_back_where_a_half_layer_takes_what_is_small_again(tmp_path):
    program = ran(tmp_path, SHAPED.replace("THEN", "last(x / size.sqrt()).sum().item()"))
    assert program.only.code == "DT301"
    assert program.only.fix.why == (
        "compute `square` in float32 here, and cast back to float16 when the numbers are small again"
    )
    again = repaired(program)
    assert "last((x / size.sqrt()).to(torch.float16))" in again and "x.to(torch.float32).square()" in again
    assert ran(tmp_path, again, name="again.py").findings == ()


def test_a_call_is_left_alone_where_a_half_layer_would_get_large_numbers(tmp_path):
    program = ran(tmp_path, SHAPED.replace("THEN", "last(x + size).sum().item()"))
    assert program.only.code == "DT301" and program.only.fix.edits == ()


ATTENTION = """
import torch
torch.manual_seed(0)
net = nn.Linear(16, 48).half()
with torch.no_grad():
    q, k, v = (net(torch.randn(2, 8, 16).half()) * 300).chunk(3, dim=-1)
scores = q @ k.mT
print((scores.softmax(-1) @ v).isnan().sum().item())
"""


def test_attention_scores_are_wide_and_their_softmax_is_not(tmp_path):
    program = ran(tmp_path, ATTENTION)
    again = repaired(program)
    assert "q.to(torch.float32) @ k.mT.to(torch.float32)" in again and "scores.softmax(-1).to(torch.float16)" in again
    assert ran(tmp_path, again, name="again.py").findings == ()


POWER = """
import torch
torch.manual_seed(0)
last = nn.Linear(64, 4)
with torch.autocast("cpu", dtype=torch.float16):
    x = nn.Linear(32, 64)(300 * torch.randn(4, 32))
    power = (x * x).sum(-1, keepdim=True)
    loss = last(x / power.sqrt() * (power - power.mean())).float().mean()
print(loss.item())
"""


def test_where_a_later_cast_would_overflow_again_the_region_computes_in_bfloat16(tmp_path):
    f = next(f for f in ran(tmp_path, POWER).findings if f.code == "DT301")
    assert (
        f.fix.why.startswith("let the model compute in bfloat16")
        and "`linear` at program.py:7 would cast the result back" in f.fix.why
    )
    assert [e.after for e in f.fix.edits] == ["torch.bfloat16"]


TRAINED = """
import torch
torch.manual_seed(0)
net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for _ in range(3):
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(torch.randn(16, 8))
    loss = (out.float() * 1e-9).sum()
    loss.backward()
    optimizer.step()
"""


def test_gradients_that_vanish_get_the_lines_of_a_loss_scaler(tmp_path):
    found = next(f for f in ran(tmp_path, TRAINED).findings if f.code in ("DT302", "DT305"))
    assert found.fix.why == "scale the loss, so that its gradients fit float16"
    assert found.fix.lines == (
        'after the line that makes `optimizer` (program.py:4): add `scaler = torch.amp.GradScaler("cpu")`',
        "program.py:9: replace `loss.backward()` with `scaler.scale(loss).backward()`",
        "program.py:10: replace `optimizer.step()` with `scaler.step(optimizer); scaler.update()`",
    )


EPSILON = """
import torch
torch.manual_seed(0)
with torch.no_grad():
    net = nn.Linear(8, 8).half()
    x = net(torch.zeros(2, 8).half()) - net.bias
    size = x.abs().sum(-1, keepdim=True) + 1e-8
    print((x / size).float().sum().item())
"""


def test_an_epsilon_that_vanishes_is_added_in_float32(tmp_path):
    program = ran(tmp_path, EPSILON)
    assert program.only.code == "DT302"
    again = repaired(program)
    assert "x.abs().sum(-1, keepdim=True).to(torch.float32) + 1e-8" in again
    assert ran(tmp_path, again, name="again.py").findings == ()


AVERAGED = """
    import copy, torch
    torch.manual_seed(0)
    net = nn.Linear(8, 8)
    average = KEPT
    with torch.no_grad():
        for step in range(12):
            for a, p in zip(average, net.parameters()):
                a.mul_(0.9999).add_(p, alpha=0.0001)
    """


def test_an_average_is_kept_wide_where_it_is_made(tmp_path):
    kept = "[p.half() for p in copy.deepcopy(net).requires_grad_(False).parameters()]"
    program = ran(tmp_path, AVERAGED.replace("KEPT", kept))
    assert program.only.code == "DT307"
    again = repaired(program)
    assert ran(tmp_path, again, name="again.py").findings == ()


@pytest.mark.parametrize(
    ("cast", "wide"),
    [
        ("p.detach().half()", "p.detach().to(torch.float32, copy=True)"),
        ("p.detach().to(dtype=torch.float16)", "p.detach().to(dtype=torch.float32, copy=True)"),
    ],
)
def test_no_diff_makes_an_average_of_the_weight_itself(cast, wide, tmp_path):
    """With the dtype of the weight, the cast alone would make no copy."""
    program = ran(tmp_path, AVERAGED.replace("KEPT", f"[{cast} for p in net.parameters()]"))
    assert program.only.code == "DT307"
    again = repaired(program)
    assert wide in again
    apart = "assert all(a.data_ptr() != p.data_ptr() for a, p in zip(average, net.parameters()))"
    assert ran(tmp_path, f"{again.rstrip()}\n{apart}\n", name="again.py").findings == ()


NAMED_AGAIN = """
    import torch
    torch.manual_seed(0)
    net = nn.Linear(8, 8).bfloat16()
    average = [p.detach().to(torch.bfloat16).clone() for p in net.parameters()]
    with torch.no_grad():
        for step in range(12):
            for a, p in zip(average, net.parameters()):
                a.mul_(0.9999).add_(p, alpha=0.0001)
    """


def test_a_cast_that_names_the_dtype_once_more_is_where_it_is_decided(tmp_path):
    """Whatever the weights are, this line makes the average bfloat16."""
    program = ran(tmp_path, NAMED_AGAIN)
    assert program.only.code == "DT307" and program.only.culprit.origin.place.line == 4
    assert "p.detach().to(torch.float32" in repaired(program)


GUIDED = """
import torch
torch.manual_seed(0)
critic = nn.Linear(8, 1).half().requires_grad_(False)
latents = LATENTS
weight = torch.logspace(0, -12, 6)
score = critic(latents).float().squeeze(-1)
(gradient,) = torch.autograd.grad((weight * F.softplus(-score)).sum(), latents)
print((gradient.float() / weight.unsqueeze(-1)).norm().item())
"""


def test_without_an_optimizer_all_that_makes_float16_makes_bfloat16(tmp_path):
    program = ran(tmp_path, GUIDED.replace("LATENTS", "torch.randn(6, 8).half().requires_grad_()"))
    assert program.only.code == "DT302" and program.only.fix.checked
    again = repaired(program)
    assert again == program.text.replace(".half()", ".to(torch.bfloat16)")
    assert ran(tmp_path, again, name="again.py").findings == ()


@pytest.mark.parametrize(
    "latents",
    [
        "torch.load('latents.pt').requires_grad_()",  # no line of the program says float16
        "torch.randn(6, 8).to([torch.float16][0]).requires_grad_()",
    ],
)
def test_float16_that_the_program_does_not_write_is_changed_in_words(latents, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(torch.randn(6, 8).half(), "latents.pt")
    fix = ran(tmp_path, GUIDED.replace("LATENTS", latents)).only.fix
    assert not fix.edits and fix.why.startswith("use bfloat16 or float32 instead of float16 at program.py:3")
