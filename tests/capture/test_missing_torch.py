"""A torch without one part of private torch: the feature that needs it is off and every report says so; all else works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import warm

PROGRAM = """
import json, os, sys, traceback
import torch, rich.console, torch._dynamo.eval_frame, torch.multiprocessing.reductions
from torch import nn
from dtypetrace.capture import offered

torch.set_num_threads(1)
have = offered.look_up


def use():
    import dtypetrace

    for options in ({"numerics": True, "autofix": True}, {"reference": True}):
        model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).bfloat16()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
        with dtypetrace.trace(**options) as t:
            for _ in range(2):
                model(torch.ones(2, 4, dtype=torch.bfloat16)).float().sum().backward()
                optimizer.step()
            try:
                model(torch.ones(2, 4))
            except RuntimeError:
                pass
        said = [line for line in t.recording.not_seen if "has no" in line]
        assert not [line for line in t.recording.not_seen if "error" in line], t.recording.not_seen
        assert t.recording.ops and (any("hooks" in line for line in said) or len(t.recording.modules) == 3), (
            options,
            said,
            len(t.recording.ops),
            t.recording.modules,
        )
        assert all(" ".join(line.split()) in " ".join(repr(t).split()) for line in said), (said, repr(t))
        yield said


def child(missing):
    def look_up(home, name):
        if f"{home}.{name}" == missing:
            raise AttributeError(name)
        asked.append(f"{home}.{name}")
        return have(home, name)

    asked = []
    offered.look_up = look_up
    try:
        return {"said": list(use()), "asked": asked}
    except BaseException:
        return {"error": traceback.format_exc()}


for missing in sys.argv[1:] or [""]:
    read, write = os.pipe()
    if not os.fork():
        with os.fdopen(write, "w") as out:
            json.dump(child(missing), out)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        print(json.dumps([missing, json.load(answer)]))
    os.wait()
"""


def without(folder: Path, *parts: str) -> dict[str, dict]:
    """For each part, how the program ran in a process of its own that did not find it."""
    (folder / "program.py").write_text(PROGRAM)
    done = warm.run(["program.py", *parts], folder)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


@pytest.mark.slow
@pytest.mark.parametrize("every", [24, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_each_part_that_is_missing_switches_off_one_feature(every, tmp_path):
    """The parts that the program's own run asks for, one after another: one in two dozen, or all."""
    whole = without(tmp_path)[""]
    assert "error" not in whole, whole["error"]
    assert not any(whole["said"])
    parts = sorted(set(whole["asked"]))
    assert len(parts) >= 25
    for part, ended in without(tmp_path, *parts[::every]).items():
        assert "error" not in ended, f"without {part}:\n{ended['error']}"
        for said in ended["said"]:
            assert len(said) <= 1, (part, said)
            assert all(re.fullmatch(rf".+: torch \S+ has no {re.escape(part)}", line) for line in said)
        if part not in REPLACED:
            compiles = part.startswith("torch._dynamo")  # only one of the runs does
            assert (any if compiles else all)(ended["said"]), f"without {part} no report says what is off"


REPLACED = {
    "torch._C._disabled_torch_function_impl",
    "torch._C._InferenceMode",
    "torch._C._dispatch_tls_is_dispatch_key_excluded",
    "torch._C._set_grad_enabled",
    "torch._ops.OpOverload",
    "torch._ops.HigherOrderOperator",
}
"""Parts for which another one does the same."""


def test_without_a_part_that_it_needs_it_fails_in_one_line(tmp_path):
    program = (
        "import torch, torch.utils._python_dispatch as d\n"
        "del d._push_mode\n"
        "try:\n    import dtypetrace; dtypetrace.trace\n"
        "except ImportError as error:\n    print(error)\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = warm.run(["program.py"], tmp_path)
    assert re.fullmatch(r"dtypetrace does not know torch \S+: cannot import name '_push_mode'.*\n", done.stdout), done
