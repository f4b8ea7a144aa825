"""The dtypes of weights as they were when the program computed with them: what it casts for saving comes after that."""

from __future__ import annotations

import programs
import pytest

NET = "net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))\n"
STEPS = """
optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
for step in range({steps}):
    net(torch.randn(4, 8, dtype=net[0].weight.dtype)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
BF16 = NET + "net.to(torch.bfloat16)\n"
TRAINED = BF16 + STEPS.format(steps=3)
DTYPES = {
    # the program, and the dtype of all weights and buffers that are floating
    "cast to be saved": (TRAINED + "net.to(torch.float32)\nstate = net.state_dict()", "bfloat16"),
    "cast to be exported": (NET + STEPS.format(steps=2) + "net.half()", "float32"),
    "cast twice": (TRAINED + "net.float()\nnet.half()", "bfloat16"),
    "one by one": (TRAINED + "for p in [*net.parameters(), *net.buffers()]:\n    if p.is_floating_point(): p.data = p.data.float()", "bfloat16"),
    "cast, saved and cast back in each epoch": (
        BF16 + "for epoch in range(2):\n" + STEPS.format(steps=2).replace("\n", "\n    ")
        + "\n    net.to(torch.float32)\n    state = net.state_dict()\n    if epoch == 0:\n        net.to(torch.bfloat16)",
        "bfloat16",
    ),
    "cast and evaluated after the last step": (TRAINED + "net.float().eval()\nnet(torch.randn(4, 8))", "bfloat16"),
    "inference alone": (BF16 + "net(torch.randn(4, 8).bfloat16())\nnet.float()", "bfloat16"),
    # casts that the steps see
    "cast before the steps": (BF16 + "net.float()" + STEPS.format(steps=2), "float32"),
    "cast between steps": (TRAINED + "net.float()" + STEPS.format(steps=2), "float32"),
    "cast and used, without steps": (BF16 + "net.float()\nnet(torch.randn(4, 8))", "float32"),
}  # fmt: skip


@pytest.mark.parametrize("name", DTYPES)
def test_the_dtype_of_weights(name, tmp_path):
    text, dtype = DTYPES[name]
    program = programs.run(tmp_path, text)
    assert program.error is None, program.error
    assert len(program.recording.parameters) == 8
    assert {p.dtype for p in program.recording.parameters} == {dtype}
    events = program.recording.events
    assert {events[p.event].to for p in program.recording.parameters} == {dtype}


def test_a_cast_that_nothing_watched(tmp_path):
    """The trace rests after a few steps, so it sees no op of the cast."""
    text = BF16 + STEPS.format(steps=40) + "net.to(torch.float32)\nstate = net.state_dict()"
    program = programs.run(tmp_path, text, watch_every=1000)
    assert program.error is None, program.error
    assert {p.dtype for p in program.recording.parameters if p.trained} == {"bfloat16"}


def test_a_refusal_after_the_cast_uses_the_weights(tmp_path):
    program = programs.run(tmp_path, TRAINED + "net.float()\nnet(torch.randn(4, 8).bfloat16())")
    assert program.error is not None
    assert {p.dtype for p in program.recording.parameters} == {"float32"}
