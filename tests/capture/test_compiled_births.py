"""What the captured graphs of a compiled function say when it has run: births, and the results of custom operators.

The compiler itself is left out: it takes seconds, and nothing here depends on it.
"""

from __future__ import annotations

import programs
import pytest
import torch

from dtypetrace.capture.compiled import inductor


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(inductor.COMPILER, "__call__", lambda self, model, inputs, **_: model.forward)
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize(
    "backend", ["'inductor'", "'eager'", "'aot_eager'", "lambda graph, inputs: graph.forward"], ids=str
)
def test_a_tensor_that_leaves_a_region_has_its_line(backend, tmp_path):
    """Whichever compiler gets the graph."""
    program = programs.run(
        tmp_path,
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(8, 8)

            def forward(self, x, w):
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    h = self.a(x)
                return h.relu(), x.half()[None], (x.mean(-1, keepdim=True) * w)[None, None]

        net = torch.compile(Net(), backend=BACKEND)
        x, w = torch.randn(2, 8), torch.ones(8, dtype=torch.float64)
        for _ in range(2):
            made = net(x, w)
        head = nn.Linear(8, 4)
        for tensor in made:
            try:
                head(tensor)
            except RuntimeError:
                pass
        """.replace("BACKEND", backend),
    )
    assert program.error is None and program.trace._watch.recorder.broken is False
    born = {f.culprit.dtype: f.culprit.origin for f in program.findings if f.code == "DT101"}
    assert born["bfloat16"].kind == "autocast" and born["bfloat16"].place.line == program.line("h = self.a(x)")
    assert born["float16"].kind == "cast" and born["float16"].place.line == program.line("x.half()")
    assert born["float64"].place.line == program.line("w = torch.randn")
    calls = {op.op: op.count for op in program.recording.ops if op.aten == "torch.compile"}
    assert calls == {"compiled Net": 2}
    assert {program.recording.ops[r.call].op for r in program.recording.regions} == {"compiled Net"}


def test_a_fake_kernel_with_another_dtype_than_the_real_one(tmp_path):
    program = programs.run(
        tmp_path,
        """
        @torch.library.custom_op("dtypetrace_test::scaled", mutates_args=())
        def scaled(x: torch.Tensor) -> torch.Tensor:
            return x.float() * 2

        @scaled.register_fake
        def _(x):
            return torch.empty_like(x)

        @torch.compile
        def f(x):
            return scaled(x)

        f(torch.ones(4).bfloat16())
        """,
    )
    op = torch.ops.dtypetrace_test.scaled.default
    assert not isinstance(op._op, inductor.RealCall) and {op: 1}[op]
    assert program.only.kind == "fake-kernel" and program.only.site.line == program.line("return scaled(x)")
    assert "float32 result" in program.only.title and "for bfloat16" in program.only.title


REGIONS = {
    "a model that is cast, with a narrow buffer": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(64, 64)
                self.register_buffer("bias", torch.tensor(-1e4, dtype=torch.float16))

            def forward(self, x):
                y = self.a(x) * 300
                return torch.where(x > 9, self.bias.to(y.dtype), y @ y.transpose(-1, -2) @ x)

        model = Net().half()  # made
        net = torch.compile(model, backend="aot_eager")
        x = torch.randn(64, 64)
        y = net(x.to(model.a.weight.dtype))
        """,
    "a layer of a model": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)
                self.b.forward = torch.compile(self.b.forward, backend="aot_eager")

            def forward(self, x):
                return self.b(self.a(x)).softmax(-1)

        net = Net()
        with torch.no_grad():
            net.a.weight.fill_(0.01), net.b.weight.fill_(500.0)
        net = net.to(torch.float16)  # made
        y = net(torch.ones(2, 64, dtype=torch.float16) * 5)
        """,
    "a function of its operands": """
        @torch.compile(backend="aot_eager")
        def scores(q, k):
            return (q @ k.transpose(-1, -2) / 8).softmax(-1)

        q, k = 60 * torch.randn(2, 32, 64)
        q, k = (t.half() for t in (q, k))  # made
        y = scores(q, q)
        """,
}


@pytest.mark.parametrize("text", REGIONS.values(), ids=REGIONS)
def test_a_region_that_overflows_has_the_dtype_of_its_weights_or_operands(text, tmp_path):
    program = programs.run(tmp_path, text + "\n        print(y.float().isnan().any(), y.float().mean())", numerics=True)
    found = [f for f in program.findings if f.severity != "note"]
    assert program.error is None and [f.code for f in found] == ["DT301"], program.trace
    assert found[0].op.startswith("compiled") and found[0].culprit.origin.kind == "cast"
    assert program.at(found[0].culprit.origin.place).endswith("# made"), program.trace
