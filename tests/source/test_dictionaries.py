"""Entries of a loaded checkpoint that are assigned to a model: cast where ``load_state_dict`` takes them."""

from __future__ import annotations

import pytest

from dtypetrace.records import Frame, Place, Recording
from dtypetrace.records.text import ProgramText
from dtypetrace.source import dictionaries

CAST = "{{name: value.to(torch.float32) if value.is_floating_point() else value for name, value in {}.items()}}"
LOAD = "    saved = torch.load(file)\n"


def edited(tmp_path, body: str) -> str | None:
    """What the edit at the load of a function writes, None where the load is not known to give a state."""
    program = tmp_path / "program.py"
    program.write_text(f"import torch\ndef resume(net, other, file):\n{LOAD}    {body}\n")
    place = Place((Frame(str(program), 3, "resume", True, 13, 3, 29),))
    recording = Recording(text=ProgramText.taken({str(program)}))
    if not dictionaries.loads_state(recording, place):
        return None
    edit = dictionaries.at_load(recording, place, "float32")
    return edit.after if edit is not None else None


@pytest.mark.parametrize(
    ("body", "given"),
    [
        ('net.load_state_dict(saved["model"], strict=False, assign=True)', 'saved["model"]'),
        ('print(saved["step"]); net.load_state_dict(saved["ema"], assign=True)', 'saved["ema"]'),
    ],
)
def test_an_entry_that_is_assigned_is_cast_where_it_is_passed(body, given, tmp_path):
    assert edited(tmp_path, body) == CAST.format(given)


@pytest.mark.parametrize(
    "body",
    [
        'net.load_state_dict(saved["model"])',  # it copies: the model keeps its dtype
        'net.load_state_dict(saved["a"], assign=True); other.load_state_dict(saved["b"], assign=True)',
        'net.load_state_dict(other["model"], assign=True)',
    ],
)
def test_other_entries_are_not(body, tmp_path):
    assert edited(tmp_path, body) is None
