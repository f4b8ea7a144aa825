"""The module tree: what is folded, what is left out, and what each line says."""

from __future__ import annotations

from dataclasses import replace

import programs
import pytest
import recordings

from dtypetrace import report
from dtypetrace.records import Input, Op, Parameter, Precision, Recording, Refused, Witness
from dtypetrace.render import listings, module_tree

BLOCKS = """
class Block(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.norm, self.lin, self.wide = nn.LayerNorm(4), nn.Linear(4, 4), wide
    def forward(self, x):
        x = self.norm(x)
        return self.lin(x.float().bfloat16() if self.wide else x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Block(n == 3) for n in range(6))
    def forward(self, x):
        for block in self.h:
            x = block(x)
        return x.float()

net = Net().bfloat16()
net(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
"""


def tree(tmp_path, **options):
    recording = programs.run(tmp_path, BLOCKS).recording
    return module_tree.tree(recording, **options)


def test_siblings_that_look_alike_are_one_line(tmp_path):
    (net,) = tree(tmp_path)
    (h,) = net.children
    assert [m.label for m in h.children] == ["0 … 2", "3", "4 … 5"]
    assert [len(m.same) + 1 for m in h.children] == [3, 1, 2]


def test_a_line_says_what_its_module_holds_takes_gives_and_makes(tmp_path):
    (net,) = tree(tmp_path)
    assert (net.parameters, net.takes, net.gives, net.backward) == (
        {"bfloat16"},
        {"bfloat16"},
        {"float32"},
        {"bfloat16", "float32"},
    )
    first, third, _ = net.children[0].children
    assert (third.takes, third.gives, third.makes) == ({"bfloat16"}, {"bfloat16"}, {"bfloat16", "float32"})
    assert not first.changes and third.changes and first.takes == first.gives == {"bfloat16"}


def test_what_a_norm_keeps_to_itself_does_not_pass(tmp_path):
    """A norm's buffers are float32, and so are the statistics that it saves for its backward pass."""
    recording = programs.run(
        tmp_path,
        """
        net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.SiLU())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            net(torch.rand(2, 1, 8, 8))
        """,
    ).recording
    (net,) = module_tree.tree(recording)
    convolution, *norms = net.children
    assert (net.takes, net.gives, convolution.takes) == ({"float32"}, {"bfloat16"}, {"float32"})
    assert norms and all(m.takes == m.gives == {"bfloat16"} for m in norms)


def test_what_does_not_change_is_folded_and_what_does_is_open(tmp_path):
    (net,) = tree(tmp_path)
    first, third, last = net.children[0].children
    assert net.open and net.children[0].open and third.open and not first.open and not last.open


def test_calls_are_those_of_all_that_a_line_stands_for(tmp_path):
    recording = programs.run(tmp_path, BLOCKS).recording
    (net,) = module_tree.tree(recording)
    assert net.ops == sum(o.count for o in recording.ops if o.module.startswith("net"))
    first = net.children[0].children[0]
    assert first.ops == sum(o.count for o in recording.ops if o.module.startswith(("net.h.0", "net.h.1", "net.h.2")))
    assert first.ops == sum(c.ops for c in first.children)


def test_a_finding_stands_at_its_module_and_the_way_there_is_open():
    recording = Recording(
        modules=("m", "m.a", "m.a.b"),
        parameters=(Parameter("m.a.b.weight", "float16", 4),),
        ops=(Op("x", "x.default", "forward", "m.a.b", -1, (), ("float16",), 1),),
    )
    finding = replace(recordings.finding(), module="a.b")
    (m,) = module_tree.tree(recording, [("DT101-1", finding)])
    assert m.open and m.children[0].open and m.children[0].children[0].findings == ["DT101-1"]


def test_a_long_tree_is_cut_at_its_depth_and_says_so(monkeypatch):
    recording, findings = recordings.many(20_000)
    monkeypatch.setattr(module_tree, "_MOST", 10**9)
    whole = module_tree.tree(recording)
    monkeypatch.setattr(module_tree, "_MOST", 100)
    roots = module_tree.tree(recording, [("DT101-1", findings[0])])
    shown = sum(1 + module_tree.size(m) for m in roots)
    assert shown < 250

    def left_out(module):
        return module.left_out + sum(map(left_out, module.children))

    assert sum(map(left_out, roots)) > 1000 and sum(map(left_out, whole)) == 0


def net(*ops, **rest) -> module_tree.Module:
    recording = Recording(modules=("net", "net.a", "net.b"), ops=ops, **rest)
    (root,) = module_tree.tree(recording)
    return root


def made(module, dtype, *inputs, phase="forward", shape=(10,), count=1, **rest) -> Op:
    return Op("mul", "mul.Tensor", phase, module, 0, inputs, (dtype,), count, shape=shape, **rest)


def test_amounts_are_those_of_all_calls_by_dtype():
    root = net(
        made("net.a", "float16", count=3),
        made("net.a", "float32", effect="view"),
        made("net.b", "float32", shape=(5,)),
        made("net.b", "float16", phase="backward", count=2),
        parameters=(Parameter("net.a.weight", "float16", 7), Parameter("net.b.weight", "float32", 2)),
    )
    assert root.computed == {"float16": 60, "float32": 20} and root.gradients == {"float16": 40}
    assert root.weights == {"float16": 7, "float32": 2}
    shown = module_tree.bar(root.computed, 80)
    assert (shown.length, shown.parts) == (100, (("float16", 60), ("float32", 20)))
    assert 0 < module_tree.bar(root.computed, 8000).length < 15 and module_tree.bar(root.weights, 0).parts


def test_a_model_that_is_gone_has_the_parameters_that_its_ops_used():
    weight = Input("float16", holder="parameter", shape=(4, 3), name="weight")
    root = net(
        made("net.a", "float16", weight),
        made("net.a", "float16", weight),
        made("net.b", "float16", weight),
        made("", "float32", Input("float32", holder="parameter", shape=(4, 3))),
    )
    assert root.weights == {"float16": 24} and root.children[0].weights == {"float16": 12}


def test_a_module_that_was_refused_returned_nothing():
    refused = Refused(
        "mul", None, "forward", "net.b", 0, (Witness(0, "input", "float16", (10,), "cpu", producer=0),),
        "RuntimeError", "", "", "DT101", "agree", left=True,
    )  # fmt: skip
    ops, calls = (made("net.a", "float16"), made("net.b", "float32")), (1, 1, 1)
    root = net(*ops, refused=(refused,), module_calls=calls, module_results=((), ("float16",), ()))
    first, second = root.children
    assert (first.gives, second.takes, second.gives, second.refused) == ({"float16"}, {"float16"}, set(), ["mul"])
    assert root.gives == set()
    results = (("float32", "int64"), ("float16",), ("float32",))
    root = net(*ops, refused=(replace(refused, healed=True),), module_calls=calls, module_results=results)
    assert root.children[1].gives == {"float32"} == root.gives and root.children[1].refused == []


RETURNS = """
from dataclasses import dataclass

@dataclass
class Output:
    value: torch.Tensor
    count: int

class Head(nn.Module):
    def forward(self, x):
        wide = x.float()
        self.scores = wide.softmax(-1).t()  # nothing uses these
        return RETURNED

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.head = nn.Linear(4, 4).half(), Head()

    def forward(self, x):
        self.head(self.lin(x))

net = Net()
net(torch.ones(2, 4).half())
"""


@pytest.mark.parametrize(
    ("returned", "gives"),
    [
        ("wide.half()", {"float16"}),
        ("{'a': [wide.double()], 'b': None}, x", {"float64", "float16"}),
        ("Output(x, 1)", {"float16"}),
        ("x.argmax(-1)", set()),
    ],
)
def test_what_a_module_gives_is_what_its_forward_returned(returned, gives, tmp_path):
    """Not what nothing used inside it, and also what nothing uses outside."""
    (net,) = module_tree.tree(programs.run(tmp_path, RETURNS.replace("RETURNED", returned)).recording)
    assert (net.gives, net.children[1].gives) == (set(), gives)


def test_the_error_of_a_module_is_its_worst_op_s():
    def precision(op, introduced):
        zeros = dict.fromkeys(("total", "lost", "lost_in_all", "flushed"), 0.0)
        return Precision(op, 1, 10, 1.0, introduced, infinite=0, spoiled=0, lost_calls=0, **zeros)

    ops = made("net.a", "float16"), made("net.a", "float16"), made("net.b", "float16")
    root = net(*ops, precisions=(precision(0, 1e-3), precision(1, 2e-3), precision(2, float("inf"))))
    assert (root.error, *(m.error for m in root.children)) == (2e-3, 2e-3, None)


def test_every_module_whose_parameter_is_an_operand_has_the_badge():
    recording = Recording(
        modules=("net", "net.a", "net.b"),
        parameters=tuple(Parameter(f"net.{name}.weight", "float16", 4) for name in "ab"),
    )
    finding = recordings.finding()
    operands = tuple(replace(finding.operands[1], name=f"{name}.weight") for name in "ab")
    (root,) = module_tree.tree(recording, [("DT304-1", replace(finding, module="a", operands=operands))])
    first, second = root.children
    assert (first.findings, first.touched, second.findings, second.touched) == (["DT304-1"], [], [], ["DT304-1"])


def test_a_finding_about_many_weights_marks_all_their_modules_and_those_of_the_trained_model():
    """Also where it lists only some of them as operands, and where a frozen copy has the same names."""
    modules = (*(f"{model}.h.{n}.{part}" for model in ("net", "old") for n in range(30) for part in "ab"),)
    recording = Recording(
        modules=("net", "old", *modules),
        parameters=tuple(Parameter(f"{m}.weight", "float16", 4, trained=m.startswith("net")) for m in modules),
    )
    names = tuple(f"h.{n}.a.weight" for n in range(30))
    finding = replace(recordings.finding(), module="", operands=(), weights=names)
    net, old = module_tree.tree(recording, [("DT304-1", finding)])

    def marked(module):
        own = [module.full] if module.findings or module.touched else []
        return [*own, *(name for child in module.children for name in marked(child))]

    (h,) = net.children
    assert marked(net) == ["net.h.0.a", "net.h.1.a"] and [len(c.same) for c in h.children] == [0, 28]
    assert marked(old) == [] and net.open and net.inside == h.inside == ["DT304-1"] and not net.findings


TWICE = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
    def forward(self, x):
        return self.lin(self.lin(x))

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.never = Block(), Block(), nn.Linear(4, 4)
    def forward(self, x):
        x = checkpoint(self.a, x, use_reentrant=False)
        return self.b(x)

from torch.utils.checkpoint import checkpoint
unet = UNet()
for _ in range(2):
    unet(torch.ones(2, 4)).sum().backward()
"""


def test_calls_of_a_module_are_those_of_its_forward(tmp_path):
    """Not of its ops, and a checkpoint's recompute is no call of the program's."""
    trace = programs.run(tmp_path, TWICE).trace
    recording = trace.recording
    calls = listings.module_calls(recording)
    assert calls == {"unet": 2, "unet.a": 2, "unet.a.lin": 4, "unet.b": 2, "unet.b.lin": 4, "unet.never": 0}
    (unet,) = module_tree.tree(recording)
    assert unet.calls == (2, 2) and unet.ops > 8
    assert {"name": "unet.b.lin", "calls": 4} in report.to_json(recording, ())["modules"]


def test_a_line_for_similar_siblings_has_the_fewest_and_the_most_calls():
    recording = Recording(
        modules=("m", "m.0", "m.1", "m.2", "n"),
        module_calls=(3, 1, 5, 2, 0),
        ops=tuple(Op("x", "x.default", "forward", f"m.{n}", -1, (), ("float16",), 1) for n in range(3)),
    )
    (m,) = module_tree.tree(recording)
    assert m.calls == (3, 3) and [(c.label, c.calls) for c in m.children] == [("0 … 2", (1, 5))]
    (old,) = module_tree.tree(replace(recording, module_calls=()))
    assert old.calls is None and listings.module_calls(replace(recording, module_calls=())) == {}
