"""The numbers that a tensor would hold if nothing had cast them before torch got them: those of NumPy's arrays, and of
lists, that the running functions still reach.

No text is asked. What a program's variables reach is tried, and the numbers tell which of it is the one: cast once
more, they are the tensor's, or those of its columns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from math import prod
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

from . import private
from .calls import given_numbers, readable
from .marks import Ref
from .running import ARGS, FUNCTION, KWARGS, RunningCall
from .stacks import variables

Tensor = torch.Tensor
LARGEST = 1 << 21
"""Numbers of the largest tensor for which it is looked."""
_FRUITLESS, _SEARCHES = 4, 200
"""Calls of one op without a find after which it is not looked any more, and all searches of a run."""
_VALUES, _DEPTH, _ENTRIES, _FRAMES = 1500, 4, 300, 8
"""How much is looked at, how deep in objects, how many entries of a container, and in how many functions."""
_COLUMNS, _COMPARED, _COMPARED_IN_ALL = 16, 300, 6000
"""Columns of the widest table of which each is compared, and the comparisons of one search and of a run: each takes
some hundredths of a millisecond."""
_FIRST = 8
"""Numbers that are compared before all are."""
_KEPT, _SMALL = 32, 1 << 14
"""How many arrays that left torch are kept, and the numbers of the largest."""
_JOINED, _PLACES = 1 << 16, 16
"""Numbers of the largest tensor that may be joined of such arrays, and the places of a number where one may begin."""
_NARROW = torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.float16
_NUMBERS = int, float
_PLAIN = frozenset({
    str, bytes, int, float, bool, complex, type(None), type, torch.dtype, torch.device, torch.Size, ModuleType,
    FunctionType, BuiltinFunctionType, MethodType,
})  # fmt: skip
"""Types of what holds no numbers to look for."""


class Wider(NamedTuple):
    """What NumPy, or a list, still has of a tensor's numbers."""

    numbers: Tensor
    """Of the tensor's shape, in float64 or int64."""
    dtypes: tuple[torch.dtype, ...]
    """To which of these they were cast; all but the tensor's own are narrower, and were cast to that."""


class CastArrays:
    """Finds these numbers for one run. user: whether a file is the user's own."""

    def __init__(self, user: Callable[[str], bool]) -> None:
        self._user = user
        self._fruitless: dict[int, int] = {}
        self._left, self._compared = _SEARCHES, _COMPARED_IN_ALL
        self._last: tuple[Ref, Wider | None] | None = None
        self._left_torch: deque[Tensor] = deque(maxlen=_KEPT)
        """Copies of tensors that NumPy took."""

    def left_torch(self, array: Any) -> None:
        """Keeps the numbers of a small tensor that NumPy has taken: the program may cast them and bring them back."""
        if self._left > 0 and _is_array(type(array)) and 1 < array.size <= _SMALL:
            with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
                if (numbers := _numbers(array, array.size)) is not None:
                    self._left_torch.append(numbers)

    def wider(self, number: int, made: Tensor, running: RunningCall | None, frame: FrameType | None) -> Wider | None:
        """The numbers of a tensor that op ``number`` made, as they were before a cast that changed them; None where
        nothing has them, or the call that made it was given them. ``running``, ``frame``: that call, and the program's
        own function."""
        if self._last is not None and self._last[0]() is made:
            return self._last[1]
        given = given_numbers(running[FUNCTION], running[ARGS], running[KWARGS]) if running is not None else None
        if running is not None and (given is None or getattr(given, "itemsize", 8) > made.itemsize):
            return None
        if not made.dtype.is_floating_point and type(_first(given)) is float:
            return None
        plain = type(made) is Tensor and made.device.type == "cpu" and readable(made) and not made.is_complex()
        if not plain or not 1 < made.numel() <= LARGEST:
            return None
        if self._left <= 0 or self._fruitless.get(number, 0) >= _FRUITLESS or made.dtype is torch.bool:
            return None
        self._left -= 1
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), private.BelowAutograd():
            search = _Search(made.detach(), min(_COMPARED, self._compared))
            found = search.among(_arrays(self._user, frame)) or search.among(reversed(self._left_torch))
            self._compared -= min(_COMPARED, self._compared) - search.left
        self._fruitless[number] = 0 if found is not None else self._fruitless.get(number, 0) + 1
        self._last = Ref(made), found
        return found


class _Search:
    """Compares arrays with a tensor."""

    def __init__(self, made: Tensor, most: int) -> None:
        self.memory = made.untyped_storage().data_ptr()
        self.made = made.to(torch.float64 if made.is_floating_point() else torch.int64)
        self.flat = self.made.reshape(-1)
        table = made.dim() == 2 and 1 < made.shape[-1] <= _COLUMNS
        self.columns = list(self.made.unbind(1)) if table else [self.flat]
        self.dtypes = [*(d for d in _NARROW if d is not made.dtype and _holds(d, made)), made.dtype]
        self.known: dict[int, Wider] = {}
        """By column: its numbers."""
        self.joined: dict[int, Wider] = {}
        """The same by where the numbers of an array begin."""
        self.exact = 0
        """Bytes of a number in the widest array that has the tensor's numbers as they are."""
        self.left = most
        """Comparisons that may still be made."""

    def among(self, arrays: Iterator[Any]) -> Wider | None:
        found: Wider | None = None
        for array in arrays:
            if self.left <= 0:
                break
            shape = _shape(array)
            if prod(shape) == self.flat.numel():
                found = found or self._cast_to(array, self.flat)
            elif len(self.columns[0]) in shape and len(self.columns) > len(self.known):
                self._columns_of(array, shape)
            elif isinstance(array, Tensor) and _FIRST <= prod(shape) < self.flat.numel() <= _JOINED:
                self._join(array)
        found = found or self._of_parts()
        if found is None or self.exact > found.dtypes[-1].itemsize:
            return None
        return Wider(found.numbers.reshape(self.made.shape), found.dtypes)

    def _of_parts(self) -> Wider | None:
        """What is known of some columns, or of some of what was joined."""
        parts = list((self.known or self.joined).values())
        if not parts:
            return None
        wide = self.made.dtype if self.made.is_floating_point() else parts[0].numbers.dtype
        numbers = self.made.to(wide, copy=True)
        for column, found in self.known.items():
            (numbers[:, column] if numbers.dim() == 2 else numbers).copy_(found.numbers)
        for begin, found in self.joined.items() if not self.known else ():
            numbers.reshape(-1)[begin : begin + len(found.numbers)] = found.numbers
        return Wider(numbers, parts[0].dtypes)

    def _columns_of(self, array: Any, shape: tuple[int, ...]) -> None:
        """Looks for the columns, or rows, of an array among those of the tensor."""
        length = len(self.columns[0])
        if len(shape) == 1:
            parts = [array]
        elif len(shape) == 2 and type(array) is not list and min(shape) <= _COLUMNS:
            parts = list(array.T if shape[0] == length else array)
        else:
            return
        for part in parts:
            for number, column in enumerate(self.columns):
                found = self._cast_to(part, column) if number not in self.known and self.left > 0 else None
                if found is not None:
                    self.known[number] = found

    def _join(self, array: Tensor) -> None:
        """Looks for an array among the numbers of the tensor."""
        last = self.flat.numel() - array.numel() + 1
        for dtype in self.dtypes:
            first = array.reshape(-1)[:1].to(dtype).to(self.flat.dtype)
            for begin in (self.flat[:last] == first).nonzero()[:_PLACES, 0].tolist():
                found = self._cast_to(array, self.flat[begin : begin + array.numel()])
                if found is not None:
                    self.joined[begin] = found

    def _cast_to(self, array: Any, made: Tensor) -> Wider | None:
        """The numbers of an array, if those of the tensor are what a cast made of them."""
        self.left -= 1
        first = _numbers(array, _FIRST)
        likely = [d for d in self.dtypes if first is not None and _made_of(first, d, made[: len(first)])]
        numbers = _numbers(array, made.numel()) if likely else None
        dtypes = tuple([d for d in likely if numbers is not None and _made_of(numbers, d, made)])
        if numbers is None or not dtypes:
            return None
        if not _equal(numbers, made):
            return Wider(numbers, dtypes)
        if not isinstance(array, Tensor) and made.numel() == self.flat.numel() and not self._is_own(array):
            self.exact = max(self.exact, getattr(array, "itemsize", 8))
        return None

    def _is_own(self, array: Any) -> bool:
        """Whether an array is the one that became the tensor."""
        return type(array) is not list and array.__array_interface__["data"][0] == self.memory


def _first(given: Any) -> Any:
    """The first number of nested lists."""
    while isinstance(given, (list, tuple)) and given:
        given = given[0]
    return given


def _shape(array: Any) -> tuple[int, ...]:
    if type(array) is not list:
        return tuple(array.shape)
    first = array[0]
    return (len(array),) if type(first) in _NUMBERS else (len(array), len(first))


def _made_of(numbers: Tensor, dtype: torch.dtype, made: Tensor) -> bool:
    """Whether a cast makes numbers of others. To float16 torch casts in two steps, and may round the other way."""
    cast = numbers.to(dtype).to(made.dtype)
    if dtype is torch.float16:
        return torch.allclose(cast, made, rtol=2.0**-10, atol=2.0**-24, equal_nan=True)
    return _equal(cast, made)


def _equal(some: Tensor, others: Tensor) -> bool:
    return bool(((some == others) | (some != some) & (others != others)).all())


def _holds(dtype: torch.dtype, made: Tensor) -> bool:
    """Whether a narrower dtype holds all numbers of a tensor."""
    if dtype.itemsize >= made.dtype.itemsize or dtype.is_floating_point and not made.dtype.is_floating_point:
        return False
    return _equal(made.to(dtype).to(made.dtype), made)


def _numbers(array: Any, most: int) -> Tensor | None:
    """The first numbers of an array or a list, in float64 or int64; None for what has none."""
    try:
        if isinstance(array, Tensor):
            taken = array.detach().reshape(-1)[:most]
        elif type(array) is list:
            taken = torch.tensor(array[:most])
            taken = torch.tensor(array[:most], dtype=torch.float64) if taken.is_floating_point() else taken
        else:
            taken = torch.tensor(array.reshape(-1)[:most].copy())  # fields may not be aligned
    except (TypeError, ValueError, RuntimeError, OverflowError):  # of another kind, or bytes in another order
        return None
    if taken.is_complex() or taken.dtype is torch.bool:
        return None
    return taken.reshape(-1)[:most].to(torch.float64 if taken.is_floating_point() else torch.int64)


# ---------------------------------------------------------------- what is reached


def _arrays(user: Callable[[str], bool], frame: FrameType | None) -> Iterator[Any]:
    """The arrays, tensors on the host, and lists of numbers that the running functions reach, nearest first."""
    waiting: deque[tuple[Any, int]] = deque()
    frames = 0
    while frame is not None and frames < _FRAMES:
        if user(frame.f_code.co_filename):
            frames += 1
            waiting.extend((value, _DEPTH) for value in variables(frame).values())
            if frame.f_back is None or frame.f_back.f_globals is not frame.f_globals:
                waiting.extend((value, _DEPTH) for value in list(frame.f_globals.values()))
        frame = frame.f_back
    seen: set[int] = set()
    left = _VALUES
    while waiting and left:
        value, depth = waiting.popleft()
        if type(value) in _PLAIN or id(value) in seen:
            continue
        seen.add(id(value))
        left -= 1
        if _is_array(type(value)):
            yield from (value[name] for name in value.dtype.names) if value.dtype.names else (value,)
        elif issubclass(type(value), Tensor):
            if type(value) is Tensor and value.device.type == "cpu" and readable(value) and not value.is_sparse:
                yield value
        elif depth:
            inside = _inside(value)
            if (
                _are_numbers(inside)
                or inside
                and all(type(row) in (list, tuple) and _are_numbers(row) for row in inside)
            ):
                yield inside
            else:
                waiting.extend((one, depth - 1) for one in inside[:_ENTRIES])


def _is_array(kind: type) -> bool:
    return kind.__module__ == "numpy" and kind.__name__ in ("ndarray", "memmap")


def _are_numbers(values: Any) -> bool:
    return len(values) > 0 and all(type(value) in _NUMBERS for value in values)


def _inside(value: Any) -> Any:
    """What a container or an object holds, where reading that runs none of the program's code."""
    kind = type(value)
    if kind is list or kind is tuple:
        return list(value if len(value) <= LARGEST else value[:_ENTRIES])
    if kind.__module__.startswith("pandas.") and kind.__name__.endswith("BlockManager"):
        return [block.values for block in value.blocks]
    if kind is dict:
        return list(islice(value.values(), LARGEST if len(value) <= LARGEST else _ENTRIES))
    if issubclass(kind, (nn.Module, type)):
        return ()
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return ()
    return list(own.values()) if type(own) is dict else ()
