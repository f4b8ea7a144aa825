"""One rank: DistributedDataParallel without its reducer, and collectives that leave tensors as they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from .pretend import Replace


class _Idle:
    """What DDP calls in C++, doing nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


def install(replace: Replace) -> None:
    """Replaces what would move values between ranks."""
    if not distributed.is_available():
        return
    replace(distributed, "init_process_group", _with_gloo(distributed.init_process_group))
    replace(DistributedDataParallel, "_ddp_init_helper", _without_reducer)
    module: Any = torch.nn.parallel.distributed
    for name in ("_verify_param_shape_across_processes", "_sync_module_states"):
        replace(module, name, lambda *_, **__: None)


def _with_gloo(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return original("gloo", *args, **kwargs)

    return init_process_group


def _without_reducer(self: Any, *_: Any, **__: Any) -> None:
    self.reducer = self.logger = _Idle()
