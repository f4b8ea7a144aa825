"""torch's own databases of operators, modules and optimizers."""

from __future__ import annotations

import importlib
import warnings
from functools import lru_cache


def _no_test_case() -> None:
    """torch's generators search the whole call stack for the ``unittest`` test that they are called from, for each sample
    again. Below pytest there is none, and the search takes longer than most of the calls that are tested."""


@lru_cache
def _database(module: str, name: str) -> tuple:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entries = getattr(importlib.import_module(f"torch.testing._internal.{module}"), name)
        for part in ("common_utils", "opinfo.core"):
            importlib.import_module(f"torch.testing._internal.{part}").extract_test_fn = _no_test_case
    return tuple(entries)


def operators() -> tuple:
    return _database("common_methods_invocations", "op_db")


def modules() -> tuple:
    return _database("common_modules", "module_db")


def optimizers() -> tuple:
    return _database("common_optimizers", "optim_db")
