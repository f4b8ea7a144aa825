"""Run many scripts in fresh processes that need not import torch again.

A server process imports the heavy libraries once and forks a child for every run; it computes
nothing itself, so no thread pool exists that a fork would break. What a run starts from is then a
process with torch imported; that dtypetrace also behaves in a process of its own is test_run.py's.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

HEAVY = ("torch.utils.data", "numpy", "torch._dynamo", "diffusers.models.unets.unet_2d_condition", "diffusers.models.autoencoders.autoencoder_kl",
         "diffusers.schedulers.scheduling_ddpm", "transformers.models.llama.modeling_llama", "peft")  # fmt: skip


class Server:
    """Starts the server with an environment; ``run`` is answered by one fresh child."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, arguments: list[str], folder: Path, timeout: float) -> tuple[int, str, str]:
        """Exit status (negative: a signal's number; 124: out of time), stdout and stderr."""
        request = {"arguments": arguments, "folder": str(folder), "timeout": timeout}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        return status, (folder / ".stdout").read_text(), (folder / ".stderr").read_text()


def serve() -> None:
    import importlib

    for name in HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _become(request)
        answers.write(f"{_wait(child, request['timeout'])}\n")
        answers.flush()


def _wait(child: int, timeout: float) -> int:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return 124


def _become(request: dict) -> None:
    """Turns this fork into the run that was asked for; never returns."""
    os.setsid()
    os.chdir(request["folder"])
    for number, name in ((0, os.devnull), (1, ".stdout"), (2, ".stderr")):
        opened = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, number)
    sys.stdin = open(0)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w", buffering=1)
    first, *rest = request["arguments"]
    if first == "-m":
        sys.argv = rest
        code, names = f"from {rest[0]}.__main__ import main; main({rest[1:]!r})", {"__name__": "started"}
        program = compile(code, "<start>", "exec")
    else:
        sys.argv, sys.path[0] = [first, *rest], os.path.dirname(first)
        main = type(sys)("__main__")
        main.__file__ = first
        sys.modules["__main__"] = main
        program, names = compile(Path(first).read_text(), first, "exec"), main.__dict__
    status = 0
    try:
        exec(program, names)
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    serve()
