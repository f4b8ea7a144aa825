"""Who is to blame for damaged numbers: the op itself, or the birth of its dtype."""

from __future__ import annotations

import programs
import pytest

PROGRAMS = {
    "an epsilon in a loss without weights": (
        """
        net = nn.Linear(4, 4).half()
        class Loss(nn.Module):
            def forward(self, x):
                return (x * 0).clamp(min=1e-8).log().mean()  #!
        loss = Loss()(net(torch.ones(2, 4).half()))
        """,
        "underflow",
    ),
    "products of what has left an autocast region": (
        """
        net = nn.Linear(4, 64)
        with torch.autocast("cpu", dtype=torch.float16):
            made = net(torch.ones(64, 4)) * 1e-5
        loss = made.square().mean()  #!
        print(loss.item())
        """,
        "underflow",
    ),
    "a cast of data": (
        """
        x = (torch.rand(64, 64) * 1e-5).half()  #!
        print(x.square().mean().item())
        """,
        "underflow",
    ),
    "a matrix that can hardly be inverted": (
        """
        year = torch.linspace(1964, 2019, 64)  #!
        x = torch.stack([year**k for k in range(4)], -1)
        inverse = torch.linalg.inv(x.T @ x)
        shown = inverse @ (x.T @ year)
        error = (x @ shown - year).square().mean()
        print(error.item())
        """,
        "precision-loss",
    ),
    "a table that is cast with its model": (
        """
        class Rotary(nn.Module):
            def __init__(self):
                super().__init__()
                self.out = nn.Linear(8, 8)
                self.register_buffer("turns", 1.0 / 100 ** (torch.arange(8) / 8), persistent=False)
            def forward(self, positions):
                angles = positions.float()[:, None] * self.turns.float()
                return self.out(angles.cos().to(self.out.weight.dtype))
        net = Rotary().to(torch.bfloat16)  #!
        made = net(torch.arange(2000))
        """,
        "downcast",
    ),
    "a mask in the dtype of the weights, which is counted elsewhere": (
        """
        weight = nn.Linear(400, 400).half().weight.detach()
        def create(scores):
            return (scores > 0).to(weight.dtype)  #!
        def density(mask):
            return mask.sum() / mask.numel()
        print(density(create(torch.rand(600, 400))).item())
        """,
        "overflow",
    ),
    "lengths in the dtype of the features, which are added up elsewhere": (
        """
        features = torch.randn(300, 8).half()
        def lengths(rows):
            return rows.type_as(features)  #!
        def offsets(sizes):
            return sizes.cumsum(0)
        print(offsets(lengths(torch.full((300,), 400))).tolist())
        """,
        "overflow",
    ),
    "statistics that are cast like what they normalize": (
        """
        class Norm:
            def __init__(self, norm):
                self.mean, self.var = norm.running_mean, norm.running_var * 810000
            def __call__(self, x):
                var = self.var.to(x.dtype)  #!
                return (x - self.mean.to(x.dtype)) / torch.sqrt(var + 1e-5)
        y = Norm(nn.BatchNorm1d(4))((900 * torch.randn(8, 4)).half())
        print(y.float().std().item())
        """,
        "overflow",
    ),
    "totals that are cast like a small table": (
        """
        table = torch.rand(4).half()
        def normalized(total):
            return table / total.type_as(table)  #!
        print(normalized(torch.rand(4) * 1e5 + 1e5).tolist())
        """,
        "overflow",
    ),
    "powers in the dtype that other numbers have by default": (
        """
        rewards = torch.randn(1200) + 4
        def weights(like):
            return torch.tensor(0.9, dtype=like.dtype) ** torch.arange(len(like))  #!
        late = weights(rewards)
        print((rewards * late / late).tolist())
        """,
        "underflow",
    ),
    "an average of copied weights": (
        """
        net = nn.Linear(32, 32).half()
        average = [p.detach().clone() for p in net.parameters()]  #!
        with torch.no_grad():
            net.weight.add_(0.25)
        for step in range(400):
            for i, p in enumerate(net.parameters()):
                average[i] = 0.9999 * average[i] + p.detach() * 1e-4
        """,
        "lost-update",
    ),
    "an average that is moved in place": (
        """
        net = nn.Linear(32, 32, bias=False).bfloat16()
        shadow = {n: p.data.clone() for n, p in net.named_parameters()}  #!
        with torch.no_grad():
            net.weight.add_(0.25)
            for step in range(400):
                for n, p in net.named_parameters():
                    shadow[n].mul_(0.9999).add_(p.data, alpha=1e-4)
        """,
        "lost-update",
    ),
    "a moment that is computed wide and stored narrow": (
        """
        net = nn.Linear(32, 1, bias=False)
        square = torch.zeros_like(net.weight, dtype=torch.bfloat16)  #!
        for step in range(400):
            net.zero_grad()
            (net(torch.randn(16, 32)).square().mean() * (100 if step < 3 else 1)).backward()
            square.copy_(square.float() * 0.999 + 0.001 * net.weight.grad ** 2)
        """,
        "lost-update",
    ),
    "the norm of the gradients, which is smoothed": (
        """
        net = nn.Linear(32, 1, bias=False)
        smooth = torch.full((4,), 2.0, dtype=torch.float16)  #!
        for step in range(400):
            net.zero_grad()
            net(torch.randn(16, 32)).square().mean().backward()
            smooth.copy_(smooth.float() * 0.9999 + 1e-4 * net.weight.grad.norm())
        """,
        "lost-update",
    ),
    "counts of pixels in float32": (
        """
        counts = torch.zeros(3)  #!
        for step in range(80):
            seen = [1 << 24, 0, 7] if not step else [1, 5, 2]
            counts += torch.tensor(seen)
        """,
        "lost-update",
    ),
    "votes in float32, pixel by pixel": (
        """
        votes = torch.full((4, 4), 2.0 ** 24)  #!
        for step in range(80):
            votes += torch.rand(4, 4) > 0.5
        """,
        "lost-update",
    ),
    "log-probabilities that were widened elsewhere": (
        """
        head = nn.Linear(32, 256)
        def logits(x):
            return head(x).to(torch.bfloat16)
        def served(x):
            return F.log_softmax(logits(x).float(), -1)
        def trained(x):
            return F.log_softmax(logits(x), -1)  #!
        x = torch.randn(64, 32)
        with torch.no_grad():
            ratio = (trained(x).float() - served(x)).sum(-1).exp()
            print((ratio - 1).abs().max().item())
        """,
        "precision-loss",
    ),
    "token losses that were widened elsewhere": (
        """
        words = torch.randint(0, 256, (4096,))
        logits = (torch.randn(4096, 32) @ torch.randn(32, 256)).to(torch.bfloat16)
        reference = F.cross_entropy(logits.float(), words, reduction="none")
        losses = F.cross_entropy(logits, words, reduction="none")  #!
        print((reference - losses.float()).sum().exp().item())
        """,
        "precision-loss",
    ),
    "what data that were cast become": (
        """
        rewards = (torch.randn(300) + 4).half()  #!
        def weights(like):
            return torch.tensor(0.9, dtype=like.dtype) ** torch.arange(len(like))
        late = weights(rewards)
        print((rewards * late / late).tolist())
        """,
        "underflow",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_to_change(name, tmp_path):
    text, kind = PROGRAMS[name]
    program = programs.run(tmp_path, text, numerics=True)
    assert program.error is None
    serious = [f for f in program.findings if f.severity != "note"]
    assert [f.kind for f in serious][:1] == [kind], program.trace
    assert program.at(serious[0].culprit.origin.place).endswith("#!"), program.trace


CENTRED = """
torch.manual_seed(0)
project = nn.Linear(8, 32)
with torch.autocast("cpu", dtype=torch.bfloat16):
    h = project(torch.randn(16, 8)) + 200
    centred = h - h.mean(-1, keepdim=True)
print(centred.float().square().mean().item())
"""


def test_all_operands_that_were_rounded_are_named(tmp_path):
    """A float32 mean alone leaves most of the error: the numbers that it is subtracted from are as coarse."""
    (finding,) = (f for f in programs.run(tmp_path, CENTRED, reference=True).findings if f.code == "DT308")
    both = "`add` (program.py:4) and `mean` (program.py:5)"
    assert finding.fix.why == f"compute {both} in float32: `sub` takes what both make" and not finding.fix.edits
    assert any(
        note.startswith(f"the error begins in {both}, which round to bfloat16 (errors of") for note in finding.notes
    )
    wide = CENTRED.replace("torch.randn(16, 8)) + 200", "torch.randn(16, 8)).float() + 200")
    assert not [f for f in programs.run(tmp_path, wide, reference=True).findings if f.code == "DT308"]
