"""What a report says about the run itself: script, arguments, start and length."""

from __future__ import annotations

import sys
import time

from dtypetrace.capture.run_line import arguments, run_line


def test_the_values_of_secret_options_are_left_out():
    assert arguments(["--token", "x", "--steps", "3"]) == "--token ... --steps 3"
    assert arguments(["--api_key=x", "--auth-token", "--flag", "a b"]) == "--api_key=... --auth-token --flag 'a b'"


def test_the_script_is_the_one_that_runs(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("")
    monkeypatch.setattr(sys, "argv", [str(script), "--lr", "1e-4"])
    found = run_line(time.time() - 2)
    assert (found["script"], found["arguments"]) == (str(script), "--lr 1e-4") and found["milliseconds"] >= 2000
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert "script" not in run_line(time.time())
