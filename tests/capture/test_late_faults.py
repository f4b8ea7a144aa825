"""Faults that begin when a trace sleeps already: each is named with one of the lines that are marked."""

from __future__ import annotations

import programs
import pytest
import torch

from dtypetrace.render import console

START = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
def batch(): return torch.randn(4, 8)
"""
STEP = """    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
LOOP = "for step in range(1, 33):\n"
TRAINED = LOOP + "    x = batch()\n" + STEP

FAULTS = {
    "the first validation, outside autocast": """
net.bfloat16()
for step in range(1, 33):
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(batch()).float().square().mean()
    loss.backward()
    optimizer.step()
net.eval()
with torch.no_grad():
    x = torch.randn(4, 8)  #!
    net(x)
""",
    "the last short batch": LOOP
    + """    x = batch()
    if step == 30:
        x = x[:3]
        x = torch.cat([x, torch.zeros(1, 8, dtype=torch.float64)])  #!
"""
    + STEP,
    "an adapter that is switched on": TRAINED
    + """
adapter = nn.Linear(8, 1).bfloat16()  #!
optimizer = torch.optim.SGD(adapter.parameters(), lr=1e-7)
for step in range(6):
    x = batch()
    (net(x).detach() + adapter(x.bfloat16())).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "averaged weights that are swapped in": TRAINED
    + """
import copy
average = copy.deepcopy(net).half()  #!
average(batch())
""",
    "a resume in the middle": TRAINED.replace("SGD", "Adam")
    + """
import io
momentum = {n: p.detach() * 1e-9 for n, p in net.named_parameters()}
kept = {n: m.to(torch.float16) for n, m in momentum.items()}  #!
file = io.BytesIO()
torch.save(kept, file)
file.seek(0)
kept = {n: m.float() for n, m in torch.load(file).items()}
""",
    "the last of some micro-batches": LOOP
    + """    for part in range(4):
        x = batch()
        if step == 30 and part == 3:
            x = x.double()  #!
        net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "a curriculum that changes the dtype of what goes in": LOOP
    + """    x = batch()
    if step >= 30:
        x = x.double()  #!
"""
    + STEP,
    "a loss scaler whose steps end": """
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for step in range(1, 80):
    x = batch()
    if step >= 30:
        x = x.clone().fill_(float("inf"))  #!
    loss = net(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)  #!
    scaler.update()
    optimizer.zero_grad()
""",
    "a cast before an export": TRAINED
    + """
net.half()  #!
torch.jit.trace(net, batch())
""",
    "a loss in float16 from some step on": LOOP.replace("33", "70")
    + """    loss = net(batch()).square().mean()
    if step >= 30:
        loss = loss.add(1).half() * 70000.0  #!
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "another default dtype": LOOP
    + """    if step == 30:
        torch.set_default_dtype(torch.float64)  #!
    x = batch()
"""
    + STEP,
    "a new last layer": LOOP
    + """    if step == 30:
        net.append(nn.Linear(1, 1).double())  #!
    x = batch()
"""
    + STEP,
    "weights that are trained from some step on": """
base = nn.Linear(8, 8).bfloat16().requires_grad_(False)  #!
for step in range(1, 42):
    if step == 30:
        base.requires_grad_(True)
        optimizer = torch.optim.SGD([*base.parameters(), *net.parameters()], lr=1e-7)
    x = base(batch().bfloat16()).float()
"""
    + STEP,
    "a checkpoint in float16": TRAINED
    + """
import io
with torch.no_grad():
    for p in net.parameters():
        p.mul_(1e-8)
state = net.state_dict()
torch.save({n: p.half() for n, p in state.items()}, io.BytesIO())  #!
""",
    "a count during the first validation": TRAINED
    + """
net.eval()
with torch.no_grad():
    correct = torch.zeros((), dtype=torch.bfloat16)  #!
    for number in range(300):
        net(batch())
        correct += 1  #!
""",
    "sampling in float16": TRAINED
    + """
with torch.no_grad():
    scores = net(torch.ones(4, 8))
    scores = (scores.abs() + 1).half() * 1e5  #!
    scores.softmax(-1)
""",
    "a norm of gradients in float16": LOOP.replace("33", "70")
    + """    loss = net(batch()).square().mean() * (1 if step < 30 else 1e9)
    loss.backward()
    if step >= 30:
        torch.stack([p.grad.half().norm() for p in net.parameters()]).norm()  #!
    optimizer.zero_grad()
    optimizer.step()
""",
    "the second epoch's loader": """
import numpy
def rows(epoch):
    dtype = numpy.float32 if epoch == 0 else numpy.float64
    return torch.utils.data.DataLoader(list(numpy.ones((30, 8), dtype)), batch_size=1)  #!
for epoch in range(2):
    for x in rows(epoch):  #!
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    "another optimizer on narrow weights": TRAINED
    + """
net.half()  #!
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-8)
for step in range(8):
    net(batch().half()).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "a mask that a validation makes": TRAINED
    + """
def validate():
    net.eval()
    mask = torch.zeros(4, 8, dtype=torch.float64)  #!
    with torch.no_grad():
        net(batch() + mask)
validate()
""",
    "a second phase of a program without modules": """
weight = torch.ones(8, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1e-5)
def fit(x):
    loss = (x * weight).square().mean()
    loss.backward()
    optimizer.step()
def refine(x):
    loss = (x * weight).half().square().mean() * 7e4  #!
    loss.backward()
    optimizer.step()
for step in range(24):
    fit(batch())
for step in range(8):
    refine(batch())
""",
    "a learning rate that falls below what the weights resolve": """
net.bfloat16()  #!
for group in optimizer.param_groups: group["lr"] = 1e-2
for step in range(1, 100):
    if step == 30:
        for group in optimizer.param_groups: group["lr"] = 1e-7
    net(batch().bfloat16()).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "a second optimizer that starts late": LOOP.replace("33", "60")
    + """    x = batch()
    if step == 30:
        critic = nn.Linear(8, 1).half()  #!
        critics = torch.optim.Adam(critic.parameters(), lr=1e-3)
    if step >= 30:
        (critic(x.half()).float().square().mean() * 1e-3).backward()
        critics.step()
        critics.zero_grad()
"""
    + STEP,
    "a sum of losses that is kept in half from some step on": LOOP.replace("33", "400")
    + """    x = batch()
    loss = net(x).square().mean()
    if step == 30:
        total = torch.zeros((), dtype=torch.bfloat16)  #!
    if step >= 30:
        total += loss.detach()  #!
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "a perplexity after the validation": TRAINED
    + """
net.eval()
with torch.no_grad():
    total = 0.0
    for x in torch.utils.data.DataLoader(torch.randn(80, 8), batch_size=4):
        total = total + net(x).square().mean() + 12
    ppl = (total / 20).half().exp()  #!
    ppl.item()
""",
    "a cache when it generates": TRAINED
    + """
net.bfloat16()
with torch.no_grad():
    cache = torch.zeros(1, 8)  #!
    for number in range(12):
        cache = torch.cat([cache, batch().bfloat16()[:1]])
        net(cache)
""",
    "a teacher that joins": """
teacher = nn.Linear(8, 1).half()
for step in range(1, 40):
    x = batch()
    loss = net(x).square().mean()
    if step >= 30:
        wanted = (teacher(x.half()) + 10).exp() * 20  #!
        loss = loss + F.mse_loss(net(x), wanted.float()) * 1e-9
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "batches that are mixed": """
import numpy
for step in range(1, 40):
    x = batch()
    if step >= 30:
        share = torch.from_numpy(numpy.full((4, 1), 0.3))  #!
        x = share * x + (1 - share) * x.flip(0)
"""
    + STEP,
    "an average of narrow weights that starts late": """
net.bfloat16()  #!
average = torch.optim.swa_utils.AveragedModel(net, avg_fn=lambda a, p, n: a + 1e-3 * (p - a))  #!
for group in optimizer.param_groups: group["lr"] = 1e-1
for step in range(1, 60):
    net(batch().bfloat16()).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step >= 30:
        average.update_parameters(net)
""",
    "a weight of the loss in float64": LOOP.replace("33", "70")
    + """    y = net(batch())
    if step >= 30:
        y = y * torch.full((1,), 0.5, dtype=torch.float64)  #!
    y.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
}
MISSED = {
    "a learning rate that falls below what the weights resolve": "weights that moved at first are not judged again",
    "batches that are mixed": "the line that made the batch ran before the call woke it; the text names no dtype",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_begins_late_is_named(fault, tmp_path):
    try:
        program = programs.run(tmp_path, START + FAULTS[fault], numerics=True, watch_every="new")
    finally:
        torch.set_default_dtype(torch.float32)
    marked = {n for n, line in enumerate(program.text.splitlines(), 1) if line.endswith("#!")}
    found = {
        place.line
        for f in program.findings
        for place in (f.site, *(o.origin.place for o in (f.culprit, *f.operands) if o is not None))
        if place.stack
    }
    assert program.trace.windows.watched < program.trace.windows.rounds
    assert bool(found & marked) is (fault not in MISSED), (program.trace, program.error)


def test_a_run_that_is_watched_from_the_step_before_is_offered(tmp_path):
    program = programs.run(tmp_path, START + FAULTS["batches that are mixed"], numerics=True, watch_every="new")
    offered = console.next_steps(program.recording, program.findings, "train.py")
    assert "Which line made `x`: dtypetrace run --every 1:29 train.py" in offered
