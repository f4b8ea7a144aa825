"""Run Python programs in fresh processes that need not import torch again.

A server process imports the libraries once and forks a child for every run. It computes nothing itself, so no thread
pool exists that a fork would break. A run that starts Python itself (``dtypetrace fix`` does, to try patches) gets a
fork of the same server. Where the start of a process is what is tested, as in ``commands/test_run.py``, start one.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch.utils.data numpy torch._dynamo networkx jinja2 rich.console".split()
MODELS = (
    "diffusers.models.unets.unet_2d_condition diffusers.models.autoencoders.autoencoder_kl "
    "diffusers.schedulers.scheduling_ddpm transformers.models.llama.modeling_llama peft"
).split()
ENVIRONMENT = {
    "PYTHONWARNINGS": "ignore",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "COLUMNS": "120",
    "NO_COLOR": "1",
}
"""What a server starts with; a run cannot change what is read when Python starts or a library is imported."""
OUT_OF_TIME = 124


def run(
    arguments: list[str], folder: Path, *, models: bool = False, timeout: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What ``python ARGUMENTS`` prints and ends with, run in a folder with this checkout importable, without input.

    ``models``: diffusers, transformers and peft are imported already. The status is 124 for a run out of time.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, open(os.devnull) as nothing:
        environment = dict(os.environ, **ENVIRONMENT, PYTHONPATH=str(ROOT)) | environment
        streams = {0: nothing.fileno(), 1: out.fileno(), 2: err.fileno()}
        with _asked(server(models), arguments, str(folder), environment, streams, timeout) as line:
            _number(line)
            status = _number(line)
        out.seek(0), err.seek(0)
        return subprocess.CompletedProcess([sys.executable, *arguments], status, out.read(), err.read())


def command(*, models: bool = False) -> list[str]:
    """A command that runs ``python ARGUMENTS``, for a shell: it asks this process's server."""
    return [sys.executable, "-S", __file__, "--ask", server(models)]


def server(models: bool) -> str:
    """The path of the socket of a server, which is started where it does not run yet."""
    return _server((*TORCH, *MODELS) if models else tuple(TORCH))


@functools.cache
def _server(libraries: tuple[str, ...]) -> str:
    """The path of the socket of a server that all processes of a test session share.

    The first that asks starts it. It ends when the last of them has ended, which closes the connection kept here.
    """
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID") or os.getpid()
    address = f"{tempfile.gettempdir()}/warm-{session}-{len(libraries)}"
    user = socket.socket(socket.AF_UNIX)
    with _alone():
        try:
            user.connect(address)
        except OSError:
            _start(address, libraries)
            user.connect(address)
        user.sendall(b"u")
    atexit.register(user.close)
    return address


@contextmanager
def _alone() -> Iterator[None]:
    """Holds a lock that all who would start or end a server need."""
    with open(f"{tempfile.gettempdir()}/warm-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _start(address: str, libraries: tuple[str, ...]) -> None:
    """Starts a server and waits until it is ready."""
    process = subprocess.Popen(
        [sys.executable, __file__, address, *libraries],
        env=dict(os.environ, **ENVIRONMENT, PYTHONPATH=str(ROOT)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline(), "the server ended"
    process.returncode = 0  # nobody here waits for it: others may use it longer than this process


def _asked(
    address: str, arguments: list[str], folder: str, environment: dict[str, str], places: dict[int, int], timeout: float
) -> socket.socket:
    """Asks a server for a run; ``places``: the file descriptors for the run, by their numbers in it."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(address)
    socket.send_fds(line, [b"r"], list(places.values()))
    request = {"arguments": arguments, "folder": folder, "environment": environment, "timeout": timeout}
    line.sendall(json.dumps(request | {"places": list(places)}).encode())
    line.shutdown(socket.SHUT_WR)
    return line


def _number(line: socket.socket) -> int:
    """Waits for the next number of a server's answer: the run's process, and when it has ended its exit status, negative
    for a signal."""
    return int(line.recv(_WIDTH, socket.MSG_WAITALL))


_WIDTH = 9


def _say(line: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError):
        line.sendall(b"%*d\n" % (_WIDTH - 1, number))


# ---------------------------------------------------------------- the server, and its forks


def serve(address: str, libraries: list[str]) -> None:
    """Answers requests, each with a fork, until nobody uses it any more."""
    import importlib

    with open(os.devnull, "w") as nothing, socket.socket(socket.AF_UNIX) as door:
        kept = os.dup(2)
        os.dup2(nothing.fileno(), 2)
        for name in libraries:
            with suppress(ImportError):
                importlib.import_module(name)
        os.dup2(kept, 2)
        gc.collect()
        gc.freeze()  # a collection in a fork would touch, and so copy, the memory of all that was imported
        with suppress(FileNotFoundError):
            os.unlink(address)  # of one that was killed
        door.bind(address)
        door.listen()
        print("ready", flush=True)
        users: list[socket.socket] = []
        running: dict[int, tuple[socket.socket, float]] = {}
        while users or not _ended(address, door):
            for line in select.select([door, *users], [], [], 0.005 if running else None)[0]:
                if line is not door:
                    line.close()
                    users.remove(line)
                elif (asked := _accepted(door, users)) is not None:
                    child, timeout = _forked(address, door, *asked)
                    running[child] = asked[0], time.monotonic() + timeout
            _report_ended(running)


def _ended(address: str, door: socket.socket) -> bool:
    """Whether the socket is gone now: not where somebody is about to use the server."""
    with _alone():
        if select.select([door], [], [], 0)[0]:
            return False
        os.unlink(address)
        return True


def _accepted(door: socket.socket, users: list[socket.socket]) -> tuple[socket.socket, list[int]] | None:
    """The next connection: one for a run, with the streams that it is given, or one more user."""
    line, _ = door.accept()
    kind, streams, *_ = socket.recv_fds(line, 1, 16)
    if kind == b"r":
        return line, streams
    users.append(line)
    return None


def _forked(address: str, door: socket.socket, line: socket.socket, streams: list[int]) -> tuple[int, float]:
    """Forks into the run that is asked for; returns its process and the seconds that it has."""
    request = json.loads(line.makefile().read())
    child = os.fork()
    if not child:
        door.close(), line.close()
        _become(address, request, streams)
    for stream in streams:
        os.close(stream)
    _say(line, child)
    return child, request["timeout"]


def _report_ended(running: dict[int, tuple[socket.socket, float]]) -> None:
    """Sends the status of each run that has ended, or that is out of time, to the process that asked for it."""
    for child, (line, end) in list(running.items()):
        done, status = os.waitpid(child, os.WNOHANG)
        if not done and time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            status, done = OUT_OF_TIME << 8, child
        if done:
            with line:
                _say(line, os.waitstatus_to_exitcode(status))
            del running[child]


def _become(address: str, request: dict, streams: list[int]) -> None:
    """Turns this fork into the run that was asked for; never returns."""
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    moved = [fcntl.fcntl(stream, fcntl.F_DUPFD, 200) for stream in streams]  # out of the way of the numbers asked for
    for stream in streams:
        os.close(stream)
    for number, stream in zip(request["places"], moved):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = sys.__stdin__ = open(0)
    sys.stdout = sys.__stdout__ = open(1, "w")
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace")
    _Started.address, subprocess.Popen = address, _Started
    tempfile.tempdir = None  # that of the new environment
    status = 0
    try:
        _execute(request["arguments"])
    except SystemExit as ending:
        if ending.code is not None and not isinstance(ending.code, int):
            print(ending.code, file=sys.stderr)
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException as error:
        inside = error.__traceback__
        while inside is not None and inside.tb_frame.f_code.co_filename == __file__:
            inside = inside.tb_next
        sys.excepthook(type(error), error, inside)
        status = 1
    with suppress(Exception):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status & 0xFF)


def _execute(arguments: list[str]) -> None:
    first, *rest = arguments
    main = sys.modules["__main__"] = type(sys)("__main__")
    if first == "-m":
        import runpy

        sys.argv, sys.path[0] = ["-m", *rest[1:]], os.getcwd()
        runpy._run_module_as_main(rest[0])
    else:
        sys.argv, sys.path[0] = [first, *rest], os.path.dirname(os.path.abspath(first))
        main.__file__ = first
        exec(compile(Path(first).read_bytes(), first, "exec"), main.__dict__)


class _Started(subprocess.Popen):
    """``subprocess.Popen`` inside a run: Python itself, started without pipes of its streams, is a fork of the server."""

    address = ""
    _line: socket.socket | None = None

    def __init__(self, args, **options) -> None:
        streams = [options.get(name) for name in ("stdin", "stdout", "stderr")]
        known = {"stdin", "stdout", "stderr", "env", "cwd", "pass_fds", "start_new_session"}
        if (
            not isinstance(args, (list, tuple))
            or args[0] != sys.executable
            or set(options) - known
            or subprocess.PIPE in streams
        ):
            super().__init__(args, **options)
            return
        self.args, self.returncode, arguments = args, None, [*args[1:]]
        while arguments[0].startswith(("-W", "-B", "-u")):  # of these a fork needs none
            del arguments[0]
        sys.stdout.flush()
        sys.stderr.flush()
        with open(os.devnull, "r+") as nothing:
            given = [
                n if s is None else nothing.fileno() if s == subprocess.DEVNULL else s for n, s in enumerate(streams)
            ]
            places = dict(enumerate(given)) | {number: number for number in options.get("pass_fds", ())}
            environment = options.get("env") or dict(os.environ)
            self._line = _asked(self.address, arguments, options.get("cwd") or os.getcwd(), environment, places, 3600)
            self.pid = _number(self._line)

    def wait(self, timeout=None):
        if self._line is None:
            return super().wait(timeout)
        if self.returncode is None:
            if not select.select([self._line], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = _number(self._line)
        return self.returncode

    def poll(self):
        if self._line is None:
            return super().poll()
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, input=None, timeout=None):
        return super().communicate(input, timeout) if self._line is None else (None, None, self.wait(timeout))[:2]

    def __exit__(self, *error) -> None:
        super().__exit__(*error) if self._line is None else self.wait()


def ask(address: str, arguments: list[str]) -> None:
    """What :func:`command` runs: it ends with the run's status. The run has this process's streams, folder and environment."""
    if arguments[0].startswith("-") and arguments[0] != "-m":
        os.execv(sys.executable, [sys.executable, *arguments])
    line = _asked(address, arguments, os.getcwd(), dict(os.environ), {0: 0, 1: 1, 2: 2}, 240)
    _number(line)
    sys.exit(_number(line) & 0xFF)


if __name__ == "__main__" and sys.argv[1] == "--ask":
    ask(sys.argv[2], sys.argv[3:])
elif __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
