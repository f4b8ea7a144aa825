"""Writes the names of all attributes that a tensor has, and those that a module has, to ``tables/attributes.json``.

Rules judge without torch: by this table they know from the program's text whether a name can be a tensor.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

TABLE = Path(__file__).parent.parent / "dtypetrace" / "tables" / "attributes.json"


def measured() -> dict[str, list[str]]:
    """For a tensor and for a module, the sorted names of its attributes, without Python's own (``__add__``)."""
    kinds = {
        "tensor": (torch.ones(1), torch.nn.Parameter(torch.ones(1)), torch.nn.Buffer(torch.ones(1))),
        "module": (torch.nn.Module(), torch.nn.Sequential(), torch.nn.ModuleList(), torch.nn.ModuleDict()),
    }
    return {
        kind: sorted({name for one in examples for name in dir(one) if not name.startswith("__")})
        for kind, examples in kinds.items()
    }


def main() -> None:
    TABLE.write_text(json.dumps(measured(), indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
