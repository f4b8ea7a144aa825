"""Run a user's program as ``python`` would run it, and end the process as ``python`` would end it.

A script file, ``-m module``, a package, a folder or zip file with ``__main__``: each sees the
argv, ``sys.path[0]``, ``__main__`` module, traceback, excepthook and exit status of a plain run.
Modules and folders go through the ``runpy`` function that ``python`` itself calls, so their
tracebacks keep its two frames; none of this file's frames is ever left in one.

Nothing here knows about tracing. In this order::

    program = Program(["train.py", "--lr", "1"])
    error = program.execute()        # what ended it, or None
    ending = show(error)             # printed as python prints it
    raise_ending(ending)             # the exit status, or death by SIGINT

Known limit: the runner's frames are below the program's on the stack (visible in ``inspect.stack()``, and in
``warnings.warn`` with a stacklevel that reaches past the program's first frame).
"""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, SourcelessFileLoader
from types import ModuleType
from typing import Any, NoReturn

from .errors import UsageError
from .terminal import unwarned


class Program:
    """One program: ``argv`` is the script's path (or the module's name) followed by its own arguments.

    Raises :class:`UsageError` where there is nothing to run. This is checked before any code of the program runs,
    except for a submodule: only importing its parent package shows whether it is missing.
    """

    def __init__(self, argv: list[str], *, as_module: bool = False) -> None:
        self.text: bytes | None = None
        """A script's text to run instead of the text in its file."""
        self.name = argv[0]
        self.argv = list(argv)
        self.as_module = as_module
        self.is_folder = False
        """A folder or zip file that holds a ``__main__``."""
        if as_module:
            self.argv[0] = "-m"  # as sys.argv[0] reads while python looks for the module
            self.file = _module_file(self.name)
        else:
            self.file = self._script_file()
        self.path0 = self._search_path0()

    def _script_file(self) -> str:
        name = self.name
        if not os.path.exists(name):
            raise UsageError(f"no such script: {name!r}. Give the path of a file, or -m and a module's name")
        if not os.access(name, os.R_OK):
            raise UsageError(f"no permission to read {name!r}. Make it readable: chmod u+r {name}")
        importer = pkgutil.get_importer(_absolute(name))
        if importer is None:
            return _absolute(name)
        spec = importer.find_spec("__main__")
        if spec is None:
            raise UsageError(f"{name!r} holds no __main__.py. Name the script in it that you want to run")
        self.is_folder = True
        return spec.origin or _absolute(name)

    def _search_path0(self) -> str:
        """What python puts first in ``sys.path``, where the program's own modules are found."""
        if self.as_module:
            return os.getcwd()
        if self.is_folder:
            return _absolute(self.name)
        return os.path.dirname(os.path.realpath(self.name))

    def text_on_disk(self) -> bytes:
        """A script's text; empty for a module, a folder, and what cannot be read."""
        if self.as_module or self.is_folder or self.file.endswith(".pyc") or not os.path.isfile(self.file):
            return b""
        try:
            with open(self.file, "rb") as source:
                return source.read()
        except OSError:
            return b""

    def refused(self) -> int | None:
        """The exit status of a script whose text is no Python, after python itself has said so; None for any other. No
        code of it has run, and none does."""
        text = self.text_on_disk()
        try:
            with unwarned():
                compile(text, self.file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):  # for null bytes, some versions of python raise the second
            return subprocess.run([sys.executable, *interpreter_options(), *self.argv], check=False).returncode
        except (MemoryError, RecursionError, OverflowError):  # nested too deep for some stack sizes: it is tried
            pass
        return None

    def execute(self) -> BaseException | None:
        """Run it here and now; returns the exception that ended it, if one did."""
        self._prepare()
        try:
            if self.as_module or self.is_folder:
                self._run_module()
            else:
                self._run_script()
        except UsageError:
            raise
        except BaseException as error:  # SystemExit and KeyboardInterrupt end programs too
            _unlink_own_frames(error)
            return error
        return None

    def _prepare(self) -> None:
        """Give the program its ``__main__``, ``sys.argv`` and ``sys.path[0]``."""
        main = ModuleType("__main__")
        if "__annotations__" in vars(sys.modules["__main__"]):  # not every version of python starts with one
            main.__annotations__ = {}
        vars(main)["__builtins__"] = sys.modules["builtins"]
        if not (self.as_module or self.is_folder):
            loader = SourcelessFileLoader if self.file.endswith(".pyc") else SourceFileLoader
            main.__loader__ = loader("__main__", self.file)
            main.__file__ = self.file
            vars(main)["__cached__"] = None
        sys.modules["__main__"] = main
        sys.argv = self.argv
        # python itself put the folder of this program's runner there, except with -P
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = self.path0
        elif self.is_folder:
            sys.path.insert(0, self.path0)

    def _run_script(self) -> None:
        main = sys.modules["__main__"]
        code = (
            _code(main.__loader__, self.file)
            if self.text is None
            else compile(self.text, self.file, "exec", dont_inherit=True)
        )
        exec(code, main.__dict__)

    def _run_module(self) -> None:
        import runpy

        try:
            # private, and what python itself calls: its two frames belong in the traceback
            run: Callable[[str, bool], object] = vars(runpy)["_run_module_as_main"]
            run("__main__" if self.is_folder else self.name, self.as_module)
        except SystemExit as error:
            if not _found_no_code(error):
                raise
            found = str(error.__context__).rstrip(".")
            raise UsageError(f"{found}. Check the name after -m and the folder you run from") from None


def interpreter_options() -> list[str]:
    """What -W, -X and the like of this process were."""
    found: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return found


def _found_no_code(error: SystemExit) -> bool:
    """Whether runpy itself raised it: runpy calls sys.exit(text) in its outermost frame when it finds no code to
    run."""
    import runpy

    tb = error.__traceback__  # first our frame, then runpy's
    from_runpy = tb is not None and tb.tb_next is not None and tb.tb_next.tb_next is None
    return from_runpy and isinstance(error.__context__, vars(runpy)["_Error"])


def _code(loader: Any, file: str) -> Any:
    if isinstance(loader, SourcelessFileLoader):
        return loader.get_code("__main__")
    with open(file, "rb") as source:
        return compile(source.read(), file, "exec", dont_inherit=True)


def _module_file(name: str) -> str:
    """The file that ``python -m name`` starts, found without importing anything; "" where only an import would show it.

    Raises UsageError where the first part of the name cannot be found.
    """
    if name.endswith(".py") and os.path.exists(name):
        raise UsageError(f"{name!r} is a file, not a module. Give its path without -m")
    first, *rest = name.split(".")
    folders = [os.getcwd(), *sys.path[0 if getattr(sys.flags, "safe_path", False) else 1 :]]
    try:
        spec = PathFinder.find_spec(first, folders) or importlib.util.find_spec(first)
    except ValueError:  # an empty name, or __main__ itself
        spec = None
    if spec is None:
        raise UsageError(f"no module named {first!r}. Check the name after -m and the folder you run from")
    found, full = spec, first
    try:
        while rest or found.submodule_search_locations is not None:
            full += "." + (rest.pop(0) if rest else "__main__")
            below = PathFinder.find_spec(full, found.submodule_search_locations)
            if below is None:
                break
            found = below
    except KeyError:  # nested namespace packages can be searched only once they are imported
        pass
    return found.origin if found.origin and os.path.isfile(found.origin) else ""


def _absolute(path: str) -> str:
    """The path as python puts it into ``__file__``: absolute, but not normalised."""
    if os.name == "nt":  # pragma: no cover
        return os.path.abspath(path)
    return os.getcwd() if path == "." else os.path.join(os.getcwd(), path)


# ---------------------------------------------------------------- how it ends


def show(error: BaseException | None) -> SystemExit | KeyboardInterrupt:
    """Print the exception that ended the program, as python prints it, through the program's own excepthook.

    Returns the exception to raise so that the process ends as it would have; :func:`raise_ending` raises it.
    """
    if error is None:
        return SystemExit(0)
    if isinstance(error, SystemExit):
        return _exit_status(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        hook = sys.excepthook
    except AttributeError:
        _write_error("sys.excepthook is missing\n")
        hook = sys.__excepthook__
    failure = _call_hook(hook, error)
    if isinstance(failure, SystemExit):
        return _exit_status(failure)
    if failure is not None:
        _write_error("Error in sys.excepthook:\n")
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        _write_error("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)
    # a subclass of it ends like any other error
    return KeyboardInterrupt() if type(error) is KeyboardInterrupt else SystemExit(1)


def _call_hook(hook: Callable[..., object], error: BaseException) -> BaseException | None:
    try:
        hook(type(error), error, error.__traceback__)
    except BaseException as failure:  # python reports any exception of a hook
        _unlink_own_frames(failure)
        return failure
    return None


def _exit_status(error: SystemExit) -> SystemExit:
    """``sys.exit``'s argument as python treats it: None and integers are the status, the rest is printed."""
    if error.code is None or isinstance(error.code, int):
        return SystemExit(0 if error.code is None else error.code)
    _write_error(f"{error.code}\n")
    return SystemExit(1)


def _write_error(text: str) -> None:
    try:
        sys.stderr.write(text)
    except Exception:  # None, closed, or not a stream at all: python then writes to the file descriptor
        with suppress(OSError):
            os.write(2, text.encode(errors="backslashreplace"))


def raise_ending(ending: SystemExit | KeyboardInterrupt) -> NoReturn:
    """End the process: python joins the threads, calls the atexit handlers, and exits or dies by SIGINT.

    An interrupt's traceback is already printed, or there is none to print. So the interrupt is raised again under an
    excepthook that prints nothing and restores the program's own.
    """
    if isinstance(ending, KeyboardInterrupt):
        hook = sys.excepthook

        def printed(*_: object) -> None:
            sys.excepthook = hook

        sys.excepthook = printed
    raise ending


@contextmanager
def interrupts_held() -> Iterator[list[int]]:
    """Hold Ctrl-C back during the block. Yields a list that is not empty once Ctrl-C was pressed."""
    held: list[int] = []
    previous = signal.getsignal(signal.SIGINT)
    if previous is None or threading.current_thread() is not threading.main_thread():
        yield held  # a handler that Python did not install, or a thread that gets no signals
        return
    signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, previous)


def _unlink_own_frames(error: BaseException) -> None:
    unlink_frames(error, lambda file: file == __file__)


def unlink_frames(error: BaseException, own: Callable[[str], bool]) -> None:
    """Takes the frames of some files out of the tracebacks of an exception and of the exceptions that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        chain = waiting.pop()
        if chain is None or id(chain) in seen:
            continue
        seen.add(id(chain))
        waiting += (chain.__cause__, chain.__context__)
        kept = []
        tb = chain.__traceback__
        while tb is not None:
            if not own(tb.tb_frame.f_code.co_filename):
                kept.append(tb)
            tb = tb.tb_next
        for tb, following in zip(kept, [*kept[1:], None]):
            if tb.tb_next is not following:
                tb.tb_next = following
        chain.__traceback__ = kept[0] if kept else None


# ---------------------------------------------------------------- when it imports


class AfterImport:
    """Call ``then()`` once, right after the program's own first import of a module has finished.

    Importing torch on the program's behalf, before it starts, would change what it does:
    ``OMP_NUM_THREADS``, ``TORCH_LOGS`` and others are read at the import, and a script may set them.
    """

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then = then

    def install(self) -> None:
        if self.name in sys.modules:
            self.then()
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec that the other finders give; the first ``exec_module`` of its loader is watched."""
        if name != self.name:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            loader.exec_module(module)
            if self in sys.meta_path:
                self.remove()
                self.then()

        loader.exec_module = exec_module
