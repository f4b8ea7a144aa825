"""A warm interpreter: it imports a script's libraries once, and each run of the script is a fork of it.

Importing torch takes a second or two, transformers and diffusers many more, and ``fix`` runs a script several times.
Only imports are shared, and only those with which the script begins: nothing of the program's own has run before the
fork. ``commands.warm_runs`` is the process; it declines where a fork is not safe (a thread, a device that is open, a
module of the program's own), and each run then starts an interpreter of its own, as it does for ``-m``.
"""

from __future__ import annotations

import ast
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from ..program import Program
from . import children


def imports(text: bytes) -> list[str]:
    """The absolute imports with which a script begins, one statement each; docstrings are skipped, and at the first
    other statement they end.

    >>> imports(b"import torch\\nfrom torch import nn\\nx = 1\\nimport numpy")
    ['import torch', 'from torch import nn']
    """
    try:
        return list(_leading(ast.parse(text)))
    except (SyntaxError, ValueError):
        return []


def _leading(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        if isinstance(node, ast.Import) or isinstance(node, ast.ImportFrom) and not node.level:
            if any(alias.name == "*" for alias in node.names):
                return
            yield ast.unparse(node)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return


class WarmInterpreter:
    """The process that is forked. ``run`` returns None where it cannot make a run: start a fresh interpreter then."""

    def __init__(self, process: subprocess.Popen[bytes], requests: IO[str], answers: IO[str]) -> None:
        self.process, self.requests, self.answers = process, requests, answers

    @classmethod
    def started(cls, words: list[str], options: list[str], environment: dict[str, str]) -> WarmInterpreter | None:
        """One that has imported what the script begins with; None where there is nothing to import, or forks are not
        safe. ``words``: the script and its arguments; ``options``: of the interpreter."""
        if sys.platform != "linux":
            return None
        program = Program(words)
        wanted = imports(program.text_on_disk())
        if not wanted:
            return None
        theirs, ours = os.pipe()
        answer, given = os.pipe()
        command = [sys.executable, *options, "-m", "dtypetrace.commands.warm_runs", str(theirs), str(given)]
        sys.stderr.flush()
        process = children.start(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, pass_fds=(theirs, given)
        )
        os.close(theirs)
        os.close(given)
        warm = cls(process, os.fdopen(ours, "w"), os.fdopen(answer))
        if warm._asked({"imports": wanted, "path0": program.path0}) == 0:
            return warm
        warm.close()
        return None

    def run(self, request: Path, *, shown: bool, seconds: float | None = None) -> int | None:
        """Forks a run and waits for it; its exit status, negative for a signal. Raises TimeoutError after so many
        seconds; it cannot be used any more then."""
        return self._asked({"request": str(request), "shown": shown}, seconds)

    def _asked(self, request: dict[str, object], seconds: float | None = None) -> int | None:
        try:
            self.requests.write(json.dumps(request) + "\n")
            self.requests.flush()
            if not select.select([self.answers], [], [], seconds)[0]:
                self.close()
                raise TimeoutError
            return int(self.answers.readline())
        except TimeoutError:
            raise
        except (OSError, ValueError):  # it has ended
            return None
        except KeyboardInterrupt:  # before the run's folder is removed
            self.close()
            raise

    def close(self) -> None:
        """Ends the process, and a run that is in progress."""
        with suppress(OSError):
            self.requests.close()  # the process ends when it has answered
        children.end(self.process, forks=True)
        self.answers.close()
