"""Options that take a number read it, and refuse what is none in one line that names the option."""

from __future__ import annotations

import argparse

import pytest

from dtypetrace import __main__
from dtypetrace.errors import UsageError


def numbers() -> list[tuple[str, str, argparse.Action]]:
    """Every option of every command whose placeholder is N."""
    commands = next(a for a in __main__.parser()._actions if isinstance(a, argparse._SubParsersAction))
    found = [(name, a) for name, p in commands.choices.items() for a in p._actions if a.metavar == "N"]
    return [(command, action.option_strings[-1], action) for command, action in found]


@pytest.mark.parametrize(("command", "option", "action"), numbers())
def test_an_option_that_takes_a_number_reads_it(command, option, action):
    assert action.type("3") == 3
    with pytest.raises(UsageError, match=f"^{option} needs a whole number .*, got 'abc'$"):
        action.type("abc")


def test_there_are_such_options():
    assert {"--steps", "--first"} <= {option for _, option, _ in numbers()}
