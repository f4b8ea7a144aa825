"""Measures the operators' dtype rules: ``python -m tools.operator_rules`` (``make dtype-rules``), some twenty minutes.

What was seen is kept below ``--kept`` shard by shard, so that an interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import pickle
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from dtypetrace.tables.operator_rules import ELEMENT_BY_ELEMENT, TABLE, Table
from dtypetrace.tables.rule_language import Unknown

from . import composites, samples
from .learn import Rule, learn
from .observe import Seen

_SHARDS = 48
_LEFT_OUT = {
    "multi_head_attention_forward": (
        "written in Python: the functions that it calls are watched and have their own rules"
    ),
}
_ONLY_REFUSED = "only refused calls were seen, so what it gives is not known"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kept", type=Path, default=Path("build/operator_rules"), help="folder for what was seen")
    options.add_argument("--shards", type=int, nargs="*", help="measure these alone, and write no table")
    chosen = options.parse_args()
    chosen.kept.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for shard in range(_SHARDS) if chosen.shards is None else chosen.shards:
        path = chosen.kept / f"{shard}.pickle"
        if not path.exists():
            path.write_bytes(pickle.dumps(measure(shard)))
    if chosen.shards is None:
        seen: dict[str, set[Seen]] = defaultdict(set)
        for shard in range(_SHARDS):
            for name, some in pickle.loads((chosen.kept / f"{shard}.pickle").read_bytes()).items():
                seen[name] |= some
        TABLE.write_text(written(seen), "utf-8")


def measure(shard: int) -> dict[str, set[Seen]]:
    """What was seen of every function and operator in one part of the samples."""
    torch.manual_seed(0)
    seen: dict[str, set[Seen]] = defaultdict(set)
    groups = [samples.of_operator(info) for info in list(op_db)[shard::_SHARDS]]
    groups += list(composites.all_of_them().values())[shard::_SHARDS]
    for group in groups:
        for one in samples.measured(group):
            seen[one.name].add(one)
    return dict(seen)


def written(seen: dict[str, set[Seen]]) -> str:
    """The table as JSON: for each operator, in one line, the numbers of operands, its rule and, where other kinds of
    operands have another one, the usual kinds and that rule."""
    rules: dict[str, str] = {}
    unexplained: dict[str, int] = {}
    left_out = dict(_LEFT_OUT)
    for name in sorted(seen):
        clear = [one for one in seen[name] if one.clear]
        # what was only seen refused may give no result (setitem), and calls without one are not seen
        if all(one.code for one in clear) or name in _LEFT_OUT:
            if clear:
                left_out.setdefault(name, _ONLY_REFUSED)
            continue
        rule = learn(sorted(clear, key=repr))
        unusual = (" ".join(rule.kinds), rule.unusual) if rule.unusual else ()
        rules[name] = " | ".join((_counts(name, rule), rule.usual, *unusual))
        if rule.unexplained:
            unexplained[name] = rule.unexplained
    data = {
        "torch": torch.__version__,
        "device": "cpu",
        "dtypes": samples.DTYPES,
        "left out": left_out,
        "unexplained": unexplained,
        "rules": rules,
    }
    return json.dumps(data | unpredicted(Table(data), seen), indent=1) + "\n"


def unpredicted(table: Table, seen: Mapping[str, Iterable[Seen]]) -> dict[str, Any]:
    """How many distinct calls were compared, and those of which the table says that it does not know, by reason."""
    calls, unknown = 0, defaultdict[str, Counter[str]](Counter)
    for name in sorted(name for name in seen if name in table):
        for one in (one for one in seen[name] if one.clear):
            calls += 1
            said = table.predict(name, one.call)
            if isinstance(said, Unknown):
                unknown[said.why][name] += 1
    return {"calls": calls, "unknown": {why: dict(sorted(unknown[why].items())) for why in sorted(unknown)}}


def _counts(name: str, rule: Rule) -> str:
    """The numbers of operands; those of lists of one tensor for what goes element by element, else a list has any
    number."""
    each = name.startswith(ELEMENT_BY_ELEMENT)
    return "any" if rule.lists and not each else " ".join(map(str, rule.counts))


def unrecognised(seen: Iterable[Seen]) -> Counter[str]:
    """Messages that say nothing of dtypes, for those who look after ``refusals.json``."""
    return Counter(one.message.splitlines()[0][:160] for one in seen if not one.clear)


if __name__ == "__main__":
    main()
