"""One watched and healed run of a program in a process of its own, with some of its files patched.

``autofix`` starts ``python -m dtypetrace.commands.healed_run REQUEST.json`` for the run that finds the problems and for
each run that tries a patch. Patched text is compiled under its original path, so relative imports, data files and
``inspect.getsource`` work as usual. Processes that the program spawns see the files on disk. To compare two runs, each
value that a backward pass began from is written down, with the norm of the gradients after it.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from ..program import AfterImport, Program, show
from ..records import Results
from ..records.text import show_patched
from ..repair.runs import Ended, Pass

_MOST_VALUES = 10_000


class PatchedFiles:
    """A finder that loads patched modules with their patched text."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self.texts = texts

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:  # the finders before this one call it, too
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                if spec.origin in self.texts and type(spec.loader) is SourceFileLoader:
                    spec.loader = _PatchedLoader(spec.loader.name, spec.origin, self.texts[spec.origin])
                return spec
        return None


class _PatchedLoader(SourceFileLoader):
    def __init__(self, name: str, file: str, text: bytes) -> None:
        super().__init__(name, file)
        self.text = text

    def get_data(self, path: str) -> bytes:
        return self.text if path == self.path else super().get_data(path)

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec", dont_inherit=True)


def main() -> None:
    """Runs the request in ``sys.argv[1]``. The answer says how the program ended; it is written next to the saved
    trace."""
    request = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    texts: dict[str, str] = request["texts"]
    program = Program(request["words"], as_module=request["as_module"])
    encoded = {file: text.encode(request["encodings"][file]) for file, text in texts.items()}
    # places have normal paths; python runs a script under the path that it was given (../train.py)
    own = os.path.abspath(program.file) if program.file else ""
    program.text = encoded.get(program.file) or encoded.get(own)
    show_patched({**texts, **({program.file: texts[own]} if own in texts else {})})
    sys.meta_path.insert(0, PatchedFiles(encoded))
    ledger: list[Pass] = []
    run = _HealedRun(request, program, ledger)
    # a program that draws different numbers in every run could not be compared with itself
    random.seed(0)
    seeds = AfterImport("numpy", lambda: sys.modules["numpy"].random.seed(0))
    seeds.install()
    watch = AfterImport("torch", run.start)
    watch.install()
    # imported before the program runs, because its folder may hold a file of any name; healing needs the rules
    from .. import report, saved

    asked = _Asked(0, closefd=False)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(asked))
    error = program.execute()
    measured = run.measured(error)
    for armed in (watch, seeds):
        armed.remove()
    trace = run.stop(error)
    ending = show(error)
    answer: dict[str, Any] = {
        "status": ending.code if isinstance(ending, SystemExit) else 130,
        "error": _ended(error),
        "ledger": ledger,
        "failure": run.failure,
        "stdin": asked.was,
    }
    answer["adapters"] = saved.packed(measured) if measured is not None else None
    if trace is not None:
        saved.save(request["trace"], Results(trace.unjudged), source=False)
        answer["root"] = str(trace.root)
    report.write_atomically(request["answer"], json.dumps(answer))


class _Asked(io.FileIO):
    """Standard input that remembers whether it was read."""

    was = False

    def readinto(self, buffer: Any) -> int:
        self.was = True
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self.was = True
        return super().readall()


def _ended(error: BaseException | None) -> Ended | None:
    if error is None or isinstance(error, SystemExit) and not error.code:
        return None
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    return {"type": type(error).__name__, "message": str(error), "frames": frames[::-1]}


class _HealedRun:
    """The trace of the run; it begins once the program has imported torch."""

    def __init__(self, request: dict[str, Any], program: Program, ledger: list[Pass]) -> None:
        self.request, self.program, self.ledger = request, program, ledger
        self.trace: Any = None
        self.adapters: Any = None
        self.failure = ""

    def start(self) -> None:
        import torch

        from ..healing.healer import Healer
        from ..lora.rerun import Adapters
        from ..rules.healing import ruling
        from ..tracing import Trace

        torch.manual_seed(0)
        source = self.request["source"]
        self.trace = Trace(
            None,
            whole_script=True,
            script=self.program.file or None,
            source=source,
            steps=self.request["steps"],
            numerics=self.request["numerics"],
            autofix=partial(
                _keeping_ledger(Healer, self.ledger, lambda *value: self.adapters.backward(*value)), judge=ruling
            ),
        )
        self.adapters = Adapters(self.request["adapters"], self.trace._watch.recorder.event_of)
        self.adapters.install()  # before the trace, which ends the program at its last step
        self.trace.start()

    def measured(self, error: BaseException | None) -> Any:
        """What the run did to its adapters, while their tensors are still known; None where it trains none."""
        ended = _ended(error)
        try:
            if self.adapters is not None:
                self.adapters.remove()
                return self.adapters.read(f"{ended['type']}: {ended['message']}" if ended else "")
        except Exception:
            self.failure = traceback.format_exc()
        return None

    def stop(self, error: BaseException | None) -> Any:
        try:
            if self.trace is not None:
                self.trace.stop(error)
        except Exception:
            self.failure = traceback.format_exc()
        return self.trace


def _keeping_ledger(healer: type, ledger: list[Pass], began: Callable[[Any, float], None]) -> type:
    """The healer class, extended to write down the value that each backward pass begins from and the norm of the
    gradients after it.

    ``began`` is called with each value, too.
    """
    import torch

    from ..capture import private

    class Ledger(healer):
        depth = 0

        @contextmanager
        def backward(self, thread: Any, frame: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[None]:
            with super().backward(thread, frame, args, kwargs):
                self.depth += 1
                try:
                    first = args[0] if args else kwargs.get("tensors", kwargs.get("outputs"))
                    values = first if isinstance(first, (list, tuple)) else [first]
                    begun = self.begun(first, [v for v in values if isinstance(v, torch.Tensor)])
                    yield
                    if begun is not None:
                        self.ended(*begun)
                finally:
                    self.depth -= 1

        def begun(self, first: Any, values: list[Any]) -> tuple[Pass, list[Any]] | None:
            """Writes down the value of an outermost backward pass; returns its entry, and the leaves that get
            gradients."""
            if self.depth > 1 or any(private.of_functorch(v) or v.is_meta for v in values):
                return None  # inside a transform (torch.func.grad) or on the meta device numbers cannot be read
            with torch.no_grad():
                value = sum(v.detach().double().sum().item() for v in values)
            began(first, value)
            if len(ledger) >= _MOST_VALUES:
                return None
            ledger.append({"value": value, "norm": None})
            return ledger[-1], _leaves(values)

        @staticmethod
        def ended(entry: Pass, leaves: list[Any]) -> None:
            with torch.no_grad():
                grads = [p.grad for p in leaves if p.grad is not None]
                entry["norm"] = sum(g.detach().double().square().sum().item() for g in grads) ** 0.5

    return Ledger


def _leaves(values: list[Any]) -> list[Any]:
    """The tensors to whose ``.grad`` a backward pass from these values will add."""
    found: dict[int, Any] = {}
    seen, waiting = set(), [v.grad_fn for v in values if v.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found[id(variable)] = variable
        waiting += (above for above, _ in node.next_functions if above is not None)
    return list(found.values())


if __name__ == "__main__":
    main()
