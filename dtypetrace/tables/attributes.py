"""Which attributes a tensor has, and which a module has: what has others is neither.

The names are in ``attributes.json``, written by ``python -m tools.tensor_attributes``. Standard library only.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("attributes.json")


def of_tensors(name: str) -> bool:
    """Whether every tensor has an attribute of this name.

    >>> of_tensors("shape"), of_tensors("items")
    (True, False)
    """
    return name.startswith("__") or name in _table()["tensor"]


def of_modules(name: str) -> bool:
    """Whether modules, or torch's containers of modules, have an attribute of this name, and tensors have not.

    >>> of_modules("named_parameters"), of_modules("shape")
    (True, False)
    """
    return name in _table()["module"] and not of_tensors(name)


@cache
def _table() -> dict[str, frozenset[str]]:
    return {kind: frozenset(names) for kind, names in json.loads(TABLE.read_text("utf-8")).items()}
