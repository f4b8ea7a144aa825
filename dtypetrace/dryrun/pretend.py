"""Lets ``torch.cuda`` answer as on a machine with one CUDA device, and tensors as if they were on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.fx.experimental._config as fx_config

from ..capture import private
from . import devices
from .functions import parameter
from .values import NeedsValueError

MEMORY = 80 << 30
"""Bytes of memory that the pretended device has."""
_MOST_CONVERTED = 1 << 26
"""Tensors with more numbers are not converted to Python or NumPy."""
_CAPABILITY = (8, 0)
_Tensor: Any = torch.Tensor
Replace = Callable[[Any, str, Any], None]


def install(replace: Replace) -> None:
    """Replaces what reads devices. ``replace(owner, name, new)`` sets an attribute until the dry run ends."""
    _tensors(replace)
    _cuda(replace)


def _tensors(replace: Replace) -> None:
    replace(_Tensor, "device", property(devices.device_of))
    replace(_Tensor, "is_cuda", property(devices.on_cuda))
    replace(_Tensor, "is_meta", property(lambda t: devices.device_of(t).type == "meta"))
    replace(_Tensor, "is_cpu", property(lambda t: devices.device_of(t).type == "cpu"))
    replace(_Tensor, "get_device", lambda t: 0 if devices.on_cuda(t) else -1)
    replace(_Tensor, "pin_memory", lambda t, device=None: t)
    replace(_Tensor, "is_pinned", lambda t, device=None: False)
    for name in ("numpy", "tolist"):
        replace(_Tensor, name, _converted(getattr(_Tensor, name)))
    replace(torch.nn.Parameter, "__new__", staticmethod(parameter(torch.nn.Parameter.__new__)))
    replace(torch, "Generator", Generator)
    replace(_Tensor, "data_ptr", _address(_Tensor.data_ptr))
    replace(torch.UntypedStorage, "data_ptr", _storage_address(torch.UntypedStorage.data_ptr))
    replace(fx_config, "meta_nonzero_assume_all_nonzero", True)
    replace(torch._tensor_str, "_str", _shown(torch._tensor_str._str))


class Generator(torch.Generator):
    """A generator on the CPU that reports the device that it was asked for."""

    _pretended: torch.device

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]

    def __init__(self, device: Any = "cpu") -> None:
        self._pretended = devices.PRETENDED if devices.is_cuda(device) else torch.device("cpu")

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._pretended


def _address(original: Callable[[Any], int]) -> Callable[[Any], int]:
    """Tensors without values have no address; what compares addresses asks whether storage is shared."""
    return lambda t: t.untyped_storage()._cdata if devices.without_numbers(t) else original(t)


def _storage_address(original: Callable[[Any], int]) -> Callable[[Any], int]:
    return lambda storage: storage._cdata if storage.device.type == "meta" else original(storage)


def _converted(original: Callable[..., Any]) -> Callable[..., Any]:
    """``x.numpy()`` and ``x.tolist()``: ones for a tensor without values, and refused for the dtypes that NumPy
    lacks."""

    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not devices.without_numbers(self):
            return original(devices.placed(self, cuda=False) if devices.on_cuda(self) else self, *args, **kwargs)
        count = self.numel()
        if count > _MOST_CONVERTED:
            raise NeedsValueError(f"the {count:,} numbers of a tensor were asked for by numpy() or tolist()")
        with private.DisableTorchFunction(), private.DisableTorchDispatch():
            original(torch.empty(0, dtype=self.dtype, requires_grad=self.requires_grad), *args, **kwargs)
            return original(torch.ones(tuple(self.shape), dtype=self.dtype), *args, **kwargs)

    return convert


def _shown(original: Callable[..., str]) -> Callable[..., str]:
    """Shows a tensor without values by its form: torch turns every mode off while it formats one."""

    def _str(self: Any, *, tensor_contents: str | None = None) -> str:
        if devices.without_numbers(self):
            kind = "Parameter containing:\n" if isinstance(self, torch.nn.Parameter) else ""
            return f"{kind}tensor(..., device='{self.device}', size={tuple(self.shape)}, dtype={self.dtype})"
        return original(devices.placed(self, cuda=False), tensor_contents=tensor_contents)

    return _str


_OF_STREAMS = {"elapsed_time": 0.0, "query": True, "is_capturing": False}


class _Stream:
    """A stream or an event that has nothing to wait for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_stream = 0
        self.device = devices.PRETENDED

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: _OF_STREAMS.get(name)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _answer(value: Any) -> Callable[..., Any]:
    """A new function for each name: dynamo knows torch's functions by identity."""
    return lambda *_, **__: value


def _cuda(replace: Replace) -> None:
    cuda: Any = torch.cuda
    properties = SimpleNamespace(
        name="pretended device", major=_CAPABILITY[0], minor=_CAPABILITY[1], total_memory=MEMORY, gcnArchName="",
        multi_processor_count=108, is_integrated=False, is_multi_gpu_board=False, warp_size=32, uuid="",
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": 1, "current_device": 0,
        "is_bf16_supported": True, "get_device_name": properties.name, "get_device_capability": _CAPABILITY,
        "get_device_properties": properties, "mem_get_info": (MEMORY, MEMORY), "initial_seed": 0,
        "memory_allocated": 0, "max_memory_allocated": 0, "memory_reserved": 0, "max_memory_reserved": 0,
        "memory_stats": {}, "utilization": 0, "is_current_stream_capturing": False, "_is_compiled": True,
        "get_arch_list": [f"sm_{_CAPABILITY[0]}{_CAPABILITY[1]}"], "can_device_access_peer": False,
    }  # fmt: skip
    for name, answer in answers.items():
        replace(cuda, name, _answer(answer))
    for name in (
        "_lazy_init", "init", "set_device", "synchronize", "empty_cache", "ipc_collect", "manual_seed",
        "manual_seed_all", "seed", "seed_all", "reset_peak_memory_stats", "reset_max_memory_allocated",
        "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream",
    ):  # fmt: skip
        replace(cuda, name, _answer(None))
    replace(cuda, "get_rng_state", lambda device="cuda": torch.get_rng_state())
    replace(cuda, "get_rng_state_all", lambda: [torch.get_rng_state()])
    for name in ("Stream", "Event"):
        replace(cuda, name, type(name, (_Stream,), {}))
    for name in ("current_stream", "default_stream"):
        replace(cuda, name, lambda device=None: _Stream())
    for name in ("device", "stream", "device_of"):
        replace(cuda, name, lambda *_, **__: contextlib.nullcontext())
    replace(torch._C, "__getattr__", _missing)
    accelerator: Any = torch.accelerator
    for name, answer in {"is_available": True, "device_count": 1, "current_device_index": 0}.items():
        replace(accelerator, name, _answer(answer))
    replace(accelerator, "current_stream", lambda device=None: _Stream())
    replace(accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    for name in ("synchronize", "empty_cache", "set_device_index"):
        replace(accelerator, name, _answer(None))


def _missing(name: str) -> Any:
    """What only a CUDA build's C module has; libraries fetch it while they are imported."""
    if name.startswith("_cuda_"):
        return _answer(0)
    raise AttributeError(f"module 'torch._C' has no attribute {name!r}")
