"""The JSON report follows the published schema."""

from __future__ import annotations

import json

import pytest
import recordings
import validated

from dtypetrace import report
from dtypetrace.records import Recording


@pytest.mark.parametrize("text", ["net", "</script>\"'&", "a b\n%", "‮rtl", "\ud800"])
def test_the_schema_holds_for_any_text(text):
    validated.check(*recordings.hostile(text))


@pytest.mark.parametrize(
    "make", [lambda: recordings.many(40), lambda: (Recording(), [recordings.bare("plan")]), lambda: (Recording(), [])]
)
def test_the_schema_holds(make):
    validated.check(*make())


def test_the_published_schema_is_what_the_records_are():
    from tools import report_schema

    assert json.loads(report.SCHEMA_FILE.read_text("utf-8")) == report_schema.schema(), "python -m tools.report_schema"


def test_the_schema_refuses_a_wrong_report():
    recording, findings = recordings.many(3)
    data = report.to_json(recording, findings)
    for change in ({"schema": 2}, {"more": 1}, {"findings": [{**data["findings"][0], "severity": "fatal"}]}):
        assert validated.faults({**data, **change})
    assert validated.faults({k: v for k, v in data.items() if k != "operators"})
