"""A part of dtypetrace's own work that fails costs only itself: the findings beside it are shown, and the report says which."""

import json

import pytest
import torch
from torch import nn

import dtypetrace
from dtypetrace import parts, report
from dtypetrace.parts import _sentence as sentence
from dtypetrace.parts import attempt, collected
from dtypetrace.render import cards, console, html_report, module_tree, page_tables, timeline
from dtypetrace.rules import findings as findings_module
from dtypetrace.rules import registry, remedies


@pytest.fixture(autouse=True)
def failures_become_sentences(monkeypatch):
    monkeypatch.setattr(parts, "_sentence", sentence)  # elsewhere in the tests a failure of our own is raised


def test_where_nobody_collects_a_failure_is_raised():
    with pytest.raises(ZeroDivisionError):
        attempt("a part", lambda: 1 / 0, 0)
    with collected() as failed:
        assert attempt("a part", lambda: 1 / 0, 7) == 7
    assert [sentence.partition(":")[0] for sentence in failed] == ["a part"]
    with pytest.raises(ZeroDivisionError):
        attempt("a part", lambda: 1 / 0, 0)


def broken(*_, **__):
    raise IndexError("in the middle\nof \x1b[31mit")


def refused():
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).half()
    with pytest.raises(RuntimeError) as caught, dtypetrace.trace(model) as t:
        model(torch.ones(3, 4).half().float().half())
        model(torch.randn(3, 4).half() * torch.ones(3, 4))
    return t, caught.value


@pytest.fixture(scope="module")
def trace():
    return refused()[0]


def only(sentences, word):
    """The one sentence that says that dtypetrace failed, which names the part."""
    found = [s for s in sentences if "dtypetrace itself failed" in s]
    assert found and all(word in s for s in found) and "\n" not in "".join(found) and "\x1b" not in "".join(found)
    return True


# ---------------------------------------------------------------- judging


def test_a_rule_that_fails_costs_its_own_findings(monkeypatch, trace):
    rules = tuple(registry.Rule(r.codes, lambda run: broken()) if "DT202" in r.codes else r for r in registry.RULES)
    monkeypatch.setattr(findings_module, "RULES", rules)
    again, _ = refused()
    assert {f.code for f in again.findings} == {f.code for f in trace.findings} - {"DT202"}
    assert only(again.recording.not_seen, "the rule for DT202")


def test_a_strategy_that_fails_leaves_the_others(monkeypatch, trace):
    monkeypatch.setattr(remedies, "SHOWN", (lambda case: broken(), *remedies.SHOWN))
    again, error = refused()
    assert again.findings[0].fix.why == trace.findings[0].fix.why
    assert len(error.__notes__) == 3 and only(again.recording.not_seen, "the remedy '<lambda>'")


@pytest.mark.parametrize(
    ("owner", "name", "part"),
    [
        (findings_module.culprits, "verdict", "who is the culprit in linear"),
        (findings_module.titles, "specific", "the title of"),
        (findings_module, "_notes", "the notes of"),
        (findings_module.consequences, "left_out", "which finding follows from which"),
    ],
)
def test_a_failure_in_the_judgement_leaves_a_finding(monkeypatch, owner, name, part):
    monkeypatch.setattr(owner, name, broken)
    again, _ = refused()
    assert "DT101" in {f.code for f in again.findings} and only(again.recording.not_seen, part)
    assert "error[DT101]" in repr(again)


def test_what_the_text_says_of_one_step_is_not_said_of_the_others(monkeypatch):
    from dtypetrace.source import facts

    monkeypatch.setattr(facts, "first_use", broken)
    again, _ = refused()
    assert again.findings and only(again.recording.not_seen, "the text of a input")


# ---------------------------------------------------------------- views


@pytest.mark.parametrize("part", ["_source", "_notes", "_help", "_header"])
def test_the_console_shows_the_rest(monkeypatch, trace, part):
    monkeypatch.setattr(console, part, broken)
    shown = report.text(trace.recording, trace.findings, 200)
    assert trace.findings[0].title in shown and "not seen: the " in shown and "Please report this" in shown


@pytest.mark.parametrize(
    ("owner", "name", "part"),
    [
        (cards, "windows", "the source lines of DT101"),
        (cards, "change", "the diff of DT101"),
        (module_tree, "tree", "the module tree"),
        (timeline, "timeline", "the timeline"),
        (page_tables, "_casts", "the table of casts"),
    ],
)
def test_the_page_shows_the_rest(monkeypatch, trace, owner, name, part):
    whole = html_report.page(trace.recording, trace.findings)
    monkeypatch.setattr(owner, name, broken)
    page = html_report.page(trace.recording, trace.findings)
    assert [c.title for c in page.cards] == [c.title for c in whole.cards]
    assert any(part in sentence for sentence in page.not_seen) and not whole.not_seen
    assert part in html_report.render(trace.recording, trace.findings)


def test_a_cell_shows_the_rest(monkeypatch, trace):
    monkeypatch.setattr(console, "_source", broken)
    part = "the source lines of DT101"
    assert part in trace._repr_html_() and part in trace.findings[0]._repr_html_()


def test_the_json_holds_the_rest(monkeypatch, trace):
    plain = report.to_plain
    monkeypatch.setattr(report, "to_plain", lambda f: broken() if f is trace.findings[0] else plain(f))
    made = json.loads(json.dumps(report.to_json(trace.recording, trace.findings)))
    assert len(made["findings"]) == len(trace.findings) - 1 and only(made["not_seen"], "the JSON of DT101")


# ---------------------------------------------------------------- the command line


def test_show_writes_the_rest(monkeypatch, trace, tmp_path, capsys):
    from dtypetrace.__main__ import main

    trace.save(tmp_path / "t.json")
    monkeypatch.setattr(report, "console", broken)
    with pytest.raises(SystemExit) as ended:
        main(["show", str(tmp_path / "t.json"), "--html", str(tmp_path / "o.html"), "--json", str(tmp_path / "o.json")])
    assert ended.value.code == 1 and "internal error" in capsys.readouterr().err
    assert (tmp_path / "o.html").stat().st_size and json.loads((tmp_path / "o.json").read_text())["findings"]


def test_fix_patches_although_a_part_fails(monkeypatch, capsys):
    """The repair itself is whole; what it says of a cause, and the edits against its warnings, fail."""
    from types import SimpleNamespace

    from dtypetrace.commands import fixing

    class Repair:
        objections = {}
        budget, endings = "run 1 took 1 s", "patched, exit status 0"
        patch = SimpleNamespace(diff=lambda: "--- a/x.py\n", texts={"x.py": ""})
        patched, changes = SimpleNamespace(error=None), []
        problems = [SimpleNamespace(findings=[SimpleNamespace(code="DT101")], remaining=list)]

        def __init__(self, runner, say, clock):
            pass

        def find(self):
            return SimpleNamespace(error=None, stdin=False, refused=True)

        def prove(self):
            return SimpleNamespace(proven=True, why="nothing is refused", rounds=1)

    monkeypatch.setattr(fixing, "Repair", Repair)
    monkeypatch.setattr(fixing, "describe", broken)
    monkeypatch.setattr(fixing, "mended", broken)
    monkeypatch.setattr(fixing, "_left", lambda *_, **__: True)
    status = fixing.fix(fixing.Request(["x.py"]))
    said = capsys.readouterr()
    assert status == 0 and said.out == "--- a/x.py\n" and "proven: nothing is refused" in said.err
    assert "not seen: what is changed for DT101" in said.err
    assert "not seen: the edits against what it warns of" in said.err
