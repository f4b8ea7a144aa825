"""The table of operator rules says what torch's kernels do: each sample is really called, and the prediction compared.

One part of the samples is called in ``make test``, all of them in ``make exhaustive``.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter

import pytest
import torch

from dtypetrace.tables.operator_rules import TABLE, table
from dtypetrace.tables.rule_language import Gives, Refuses, Unknown
from tools.operator_rules.__main__ import _SHARDS, measure

DATA = json.loads(TABLE.read_text("utf-8"))
QUICK = 29
MOST_UNKNOWN = 0.01
"""The share of calls of which the table may say that it does not know."""
LEFT_OUT = {name for names in DATA["unknown"].values() for name in names}
"""The functions and operators with such calls; the table has the reasons."""


@pytest.mark.skipif(
    torch.__version__.split("+")[0] != DATA["torch"].split("+")[0], reason="the table was measured from another torch"
)
@pytest.mark.parametrize(
    "shard", [n if n == QUICK else pytest.param(n, marks=pytest.mark.exhaustive) for n in range(_SHARDS)]
)
def test_predictions_equal_kernels(shard):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = measure(shard)
    clear = [one for name in seen for one in seen[name] if one.clear]
    assert {one.name for one in clear if one.name not in table()} <= DATA["left out"].keys()
    calls = [one for one in clear if one.name in table()]
    wrong, unknown = [], Counter()
    for one in calls:
        said = table().predict(one.name, one.call)
        if isinstance(said, Unknown):
            unknown[one.name] += 1
        elif isinstance(said, Refuses):
            wrong += [(one, said)] if said.code != one.code else []
        elif one.code or _given(said, len(one.dtypes)) != one.dtypes:
            wrong.append((one, said))
    assert not wrong, f"{len(wrong)} of {len(calls)} calls, such as {wrong[0]}"
    assert unknown.keys() <= LEFT_OUT, unknown.most_common(5)


def test_what_is_left_out_is_little_and_has_reasons():
    assert all(DATA["left out"].values()) and all(DATA["unknown"])
    assert sum(sum(names.values()) for names in DATA["unknown"].values()) <= MOST_UNKNOWN * DATA["calls"]
    assert all(name in table() for name in LEFT_OUT)
    assert not any(name in table() for name in DATA["left out"])


def _given(said: Gives, results: int) -> tuple[str, ...]:
    """The dtypes of so many results: a single one is that of all; ``min`` of a whole tensor gives no indices."""
    return (said.dtypes * results if len(said.dtypes) == 1 else said.dtypes)[:results]
