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
