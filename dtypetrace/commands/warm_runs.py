"""The process that ``repair.warm`` forks for each run of ``dtypetrace fix``.

It imports what the script begins with, and answers 0 if forks of it are as good as fresh interpreters, else 1. Then it
forks for every request, waits, and answers with the exit status. It computes nothing: no kernel runs in it, so no pool
of threads exists that a fork would break.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import signal
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator
from typing import Any

_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/accel", "/dev/vfio")


class Unsafe(Exception):
    """A fork of this process would not be as good as a fresh interpreter."""


def main() -> None:
    requests, answers = os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the run that is forked, and fix itself
    try:
        _warmed(json.loads(requests.readline()))
    except BaseException:  # a module may also raise SystemExit
        print(1, file=answers, flush=True)
        return
    print(0, file=answers, flush=True)
    for line in requests:
        request = json.loads(line)
        child = os.fork()
        if not child:
            requests.close()
            answers.close()
            _become(request)
            return  # ends as an interpreter ends: threads are joined, atexit handlers run
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)


def _warmed(asked: dict[str, Any]) -> None:
    """Imports; raises Unsafe, and whatever an import raises."""
    sys.path[0] = asked["path0"]
    printed, sys.stdout = sys.stdout, io.StringIO()
    if importlib.util.find_spec("numpy") is not None:
        import numpy  # noqa: F401  # torch imports it; its threads know how to be forked
    threads = _threads()
    names: dict[str, Any] = {}
    for statement in asked["imports"]:
        if not all(map(_of_a_library, _packages(statement))):
            break
        exec(compile(statement, "<imports>", "exec"), names)
    if "torch" not in sys.modules:
        raise Unsafe("nothing that takes time was imported")
    if sys.stdout.getvalue() or _threads() != threads or threading.active_count() > 1:
        raise Unsafe("an import printed, or started a thread")
    if own := [m for m in list(sys.modules.values()) if not _known(getattr(m, "__file__", None))]:
        raise Unsafe(f"{own[0]} is no library")
    if any(map(_device, os.listdir("/proc/self/fd"))):
        raise Unsafe("an import opened a device")
    sys.stdout = printed
    from .. import report, saved, tracing  # noqa: F401
    from ..healing import ledger  # noqa: F401
    from . import healed_run  # noqa: F401


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _device(number: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").startswith(_DEVICES)
    except OSError:  # the folder that was just listed
        return False


def _packages(statement: str) -> Iterator[str]:
    """The first parts of the modules' names in an import statement."""
    kind, _, rest = statement.partition(" ")
    for part in rest.partition(" import ")[0].split(",") if kind == "import" else [rest.partition(" import ")[0]]:
        yield part.split()[0].partition(".")[0]


def _of_a_library(package: str) -> bool:
    if package in sys.stdlib_module_names:
        return True
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None and _known(spec.origin)


def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.path.dirname(__file__))]
    return tuple({os.path.join(f, "") for path in found for f in (path, os.path.realpath(path))})


_LIBRARIES = _libraries()


def _known(file: str | None) -> bool:
    """Whether a module's file belongs to a library, to Python or to dtypetrace; what is no file on disk does."""
    return file is None or not os.path.isabs(file) or file.startswith(_LIBRARIES)


def _become(request: dict[str, Any]) -> None:
    """Turns this fork into the run that was asked for."""
    from . import healed_run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    nowhere = os.open(os.devnull, os.O_RDWR)
    shown = request["shown"]
    os.dup2(nowhere, 0)
    os.dup2(2 if shown else nowhere, 1)
    if not shown:
        os.dup2(nowhere, 2)
    os.close(nowhere)
    sys.argv = [sys.argv[0], request["request"]]
    healed_run.main()


if __name__ == "__main__":
    main()
