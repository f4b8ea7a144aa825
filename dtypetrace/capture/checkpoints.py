"""What a program writes to checkpoints and takes from them: the tensors' dtypes on both sides, once for each call.

The functions that are replaced are those that ``torch.save``, ``torch.load`` and safetensors' writers look up when they
are called, so it does not matter how a program imported those.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ..records import Transfer
from . import private, threads
from .calls import dtype_name
from .session import Session

_WRITERS = ("_save", "_legacy_save")
_READERS = ("_load", "_legacy_load")
_SAFE_WRITERS = ("_evaluate_tensors_for_save", "_flatten")
"""The first one that safetensors' version has."""
_SAFE_READER = "_view2torch"
"""Makes tensors of the bytes of a file; a file that is opened is mapped (``torch.UntypedStorage.from_file``)."""
_SAFE_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_LONGEST_HEADER = 16_000_000
_DEEPEST = 8
_MOST_TENSORS, _MOST_NAMES = 20_000, 64
_OPTIMIZER_KEYS = frozenset({"state", "param_groups"})
"""What ``Optimizer.state_dict`` has."""
_Replace = Callable[[Any, str, Any], None]


class Checkpoints:
    """Notes them in a session (``transfers``); the last call of a line counts."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._safe = False

    def install(self, replace: _Replace) -> None:
        """Watches torch's own functions."""
        self._safe = False
        for name in (*_WRITERS, *_READERS):
            original = getattr(torch.serialization, name, None)
            if original is not None:
                make = self._writer if name in _WRITERS else self._reader
                replace(torch.serialization, name, make(original))
        mapped = torch.UntypedStorage.from_file
        replace(torch.UntypedStorage, "from_file", staticmethod(self._mapper(mapped)))
        kind = torch.optim.Optimizer
        replace(kind, "load_state_dict", self._taken_over(kind.__dict__["load_state_dict"]))

    def watch_safetensors(self, replace: _Replace) -> None:
        """Watches safetensors once the program has imported it."""
        module = None if self._safe else sys.modules.get("safetensors.torch")
        name = next((n for n in _SAFE_WRITERS if callable(getattr(module, n, None))), None)
        if module is not None and name is not None:
            self._safe = True
            replace(module, name, self._writer(getattr(module, name)))
            if callable(getattr(module, _SAFE_READER, None)):
                replace(module, _SAFE_READER, self._reader(getattr(module, _SAFE_READER)))

    def _writer(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def write(given: Any, *args: Any, **kwargs: Any) -> Any:
            self._note("written", given, sys._getframe(1))
            return original(given, *args, **kwargs)

        return write

    def _reader(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def read(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            self._note("read", found, sys._getframe(1))
            return found

        return read

    def _mapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """safetensors maps each file that it opens: the dtypes are in the file's header."""

        @wraps(original)
        def from_file(file: Any, *args: Any, **kwargs: Any) -> Any:
            storage = original(file, *args, **kwargs)
            if str(file).endswith(".safetensors"):
                self._note("read", Path(file), sys._getframe(1))
            return storage

        return from_file

    def _note(self, kind: str, given: Any, frame: FrameType) -> None:
        if self._session.broken or not threads.watched_by(self._session):
            return
        try:
            with private.DisableTorchFunction(), private.DisableTorchDispatch():
                place = self._session.place(self._session.thread_state(), frame)
                file = given.name if isinstance(given, Path) else ""
                found = list(_header(given) if file else _tensors(given))
                resumes = any(in_state for *_, in_state in found) or _holds_optimizer(given)
                sums: dict[tuple[str, torch.dtype, torch.dtype], _Sum] = {}
                for path, tensor, in_state in found:
                    name = path.rpartition(".")[2] if in_state else path
                    group = f"optimizer {name}" if in_state else file or path.partition(".")[0]
                    sums.setdefault((group, tensor.dtype, tensor.dtype), _Sum()).add(tensor, name, self._session)
                self._keep(kind, place, sums, resumes)
        except Exception:
            self._session.fail("a checkpoint")

    def _taken_over(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``Optimizer.load_state_dict`` casts the state to the dtype of the parameters."""

        @wraps(original)
        def load_state_dict(optimizer: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            loaded = original(optimizer, state_dict, *args, **kwargs)
            self._note_state(optimizer, state_dict, sys._getframe(1))
            return loaded

        return load_state_dict

    def _note_state(self, optimizer: Any, given: Any, frame: FrameType) -> None:
        if self._session.broken or not threads.watched_by(self._session):
            return
        try:
            before = _entries(given.get("state") if isinstance(given, dict) else None)
            place = self._session.place(self._session.thread_state(), frame)
            sums: dict[tuple[str, torch.dtype, torch.dtype], _Sum] = {}
            for now, old in zip(_entries(optimizer.state), before):
                for name in now.keys() & old.keys():
                    key = name, old[name].dtype, now[name].dtype
                    sums.setdefault(key, _Sum()).add(now[name], name, self._session)
            self._keep("state loaded", place, sums, True, type(optimizer).__name__)
        except Exception:
            self._session.fail("an optimizer's state")

    def _keep(
        self,
        kind: str,
        place: int,
        sums: dict[tuple[str, torch.dtype, torch.dtype], _Sum],
        resumes: bool,
        optimizer: str = "",
    ) -> None:
        """Replaces what an earlier call of this line left of these groups."""
        groups = {group for group, *_ in sums}
        for key in [key for key in self._session.transfers if key[0] == kind and key[-1] == place and key[1] in groups]:
            del self._session.transfers[key]
        for (group, source, dtype), one in sums.items():
            names = tuple(one.names)
            key = kind, group, dtype_name(source), dtype_name(dtype), place
            self._session.transfers[key] = Transfer(
                *key[:4], one.tensors, one.size, place, names, resumes, optimizer, one.event
            )


class _Sum:
    """What tensors of one group and dtype add up to."""

    def __init__(self) -> None:
        self.tensors = self.size = 0
        self.names: dict[str, None] = {}
        self.event = -1

    def add(self, tensor: torch.Tensor, name: str, session: Session) -> None:
        if not self.tensors:
            self.event = session.event_of(tensor)
        self.tensors += 1
        self.size += tensor.numel()
        if len(self.names) < _MOST_NAMES:
            self.names[".".join("*" if part.isdecimal() else part for part in name.split("."))] = None


def _holds_optimizer(given: Any) -> bool:
    """Whether a checkpoint has an optimizer's part: that of plain SGD has no tensors."""
    parts = (given, *given.values()) if isinstance(given, dict) else ()
    return any(isinstance(part, dict) and part.keys() >= _OPTIMIZER_KEYS for part in parts)


def _entries(state: Any) -> list[dict[str, torch.Tensor]]:
    """The tensors in an optimizer's state, by name, for each parameter in order."""
    entries = state.values() if isinstance(state, dict) else ()
    return [
        {str(k): v for k, v in entry.items() if isinstance(v, torch.Tensor) and v.dtype.is_floating_point}
        for entry in entries
        if isinstance(entry, dict)
    ]


def _header(file: Path) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """The floating tensors of a file of safetensors, without their values."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(length)) if length <= _LONGEST_HEADER else {}
    for name, told in header.items():
        dtype = _SAFE_DTYPES.get(told.get("dtype", ""))
        if dtype is not None:
            yield name, torch.empty(told["shape"], dtype=getattr(torch, dtype), device="meta"), False


def _tensors(given: Any) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """The floating tensors in what is written or read: their paths, and whether they are an optimizer's state."""
    waiting: list[tuple[str, Any, int, bool]] = [("", given, 0, False)]
    left = _MOST_TENSORS
    while waiting and left:
        path, value, depth, in_state = waiting.pop()
        if isinstance(value, torch.Tensor):
            if value.dtype.is_floating_point:
                left -= 1
                yield path, value, in_state
        elif isinstance(value, torch.nn.Module):
            held = (*value.named_parameters(), *value.named_buffers())
            waiting += [(f"{path}.{n}".lstrip("."), t, depth, in_state) for n, t in held]
        elif depth < _DEEPEST and isinstance(value, (dict, list, tuple)):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            inside = in_state or isinstance(value, dict) and value.keys() >= _OPTIMIZER_KEYS
            waiting += [(f"{path}.{n}".lstrip("."), one, depth + 1, inside) for n, one in pairs]
