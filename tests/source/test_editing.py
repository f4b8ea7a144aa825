"""Edits of the program's text that its other tests do not reach."""

from __future__ import annotations

import pytest

from dtypetrace.records import Frame, Place, Recording
from dtypetrace.records.text import LIVE
from dtypetrace.source import editing
from dtypetrace.source.patch import Patch


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("if x:\n    x = x.float()\n    use(x)\n", "if x:\n    use(x)\n"),
        ("if x:\n    use(x)\n    x = x.float()  # wide\nuse(x)\n", "if x:\n    use(x)\nuse(x)\n"),
        ("if x:\n    x = x.to(\n        wide\n    )\n    use(x)\n", "if x:\n    use(x)\n"),
        ("for x in y:\n    x = x.float()\nuse(x)\n", "for x in y:\n    pass\nuse(x)\n"),
        ("if y:\n    use(x)\nelse:\n    x = x.float()\nuse(x)\n", "if y:\n    use(x)\nelse:\n    pass\nuse(x)\n"),
        ("use(x); x = x.float()\nuse(x)\n", "use(x); pass\nuse(x)\n"),
        ("x = x.float(); use(x)\nuse(x)\n", "pass; use(x)\nuse(x)\n"),
        ("use(x)\nx = x.float()\n", "use(x)\npass\n"),  # nothing follows
        ("use(x)\ny = x.float()\nuse(y)\n", "use(x)\ny = x\nuse(y)\n"),
    ],
)
def test_a_cast_is_left_out_with_its_statement_if_nothing_else_is_in_it(before, after, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(before)
    at = next(n for n, line in enumerate(before.splitlines(), 1) if " = x." in line)
    begin = before.splitlines()[at - 1].index("x.") + 1
    call = "x.to(\n        wide\n    )" if "wide\n" in before and "to(" in before else "x.float()"
    end = at + call.count("\n")
    column = begin + len(call) if end == at else len(call.rpartition("\n")[2]) + 1
    place = Place((Frame(str(file), at, "<module>", True, begin, end, column),))
    edit = editing.uncast(Recording(places=(place,), text=LIVE), place)
    patch = Patch(LIVE)
    patch.set(patch.locate([edit]))
    assert patch.texts[str(file)] == after
