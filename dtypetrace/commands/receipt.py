"""``dtypetrace receipt``: what a saved run was asked for in dtypes, beside what ran."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import arguments


class ReceiptCommand:
    """Print for every part of a run what was asked for in dtypes beside what ran.

    The trace is a file that dtypetrace run --save wrote. The parts are weights, buffers, compute, what is saved for
    backward, gradients and their reduction, the optimizer's state, the loss scaler and checkpoints. Rows that differ
    from what was asked for begin with an unequal sign; torch is not needed.
    """

    name = "receipt"
    usage = "dtypetrace receipt TRACE"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("trace", type=Path, metavar="TRACE", help="a file that run --save wrote")

    def __call__(self, options: argparse.Namespace) -> SystemExit:
        print(repr(arguments.saved_trace(options.trace).receipt()))
        return SystemExit(0)
