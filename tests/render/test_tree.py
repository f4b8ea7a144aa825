"""The module tree: what is folded, what is left out, and what each line says."""

from __future__ import annotations

import programs
import recordings

from dtypetrace.records import Op, Parameter, Recording
from dtypetrace.render import module_tree

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
    from dataclasses import replace

    finding = replace(recordings.finding(), module="a.b")
    (m,) = module_tree.tree(recording, [("DT101-1", finding)])
    assert m.open and m.children[0].open and m.children[0].children[0].findings == ["DT101-1"]


def test_a_long_tree_is_cut_at_its_depth_and_says_so():
    recording, findings = recordings.many(20_000)
    roots = module_tree.tree(recording, [("DT101-1", findings[0])], most=100)
    shown = sum(1 + module_tree.size(m) for m in roots)
    assert shown < 250
    whole = module_tree.tree(recording, most=10**9)

    def left_out(module):
        return module.left_out + sum(map(left_out, module.children))

    assert sum(map(left_out, roots)) > 1000 and sum(map(left_out, whole)) == 0
