"""The adapters of a running program: measured at the steps of its own optimizer, and converted to float32 if the run
asks for it.

``commands.healed_run`` installs one for each run. When an optimizer gets parameters, adapters are looked for in the
models that hold those, before the optimizer makes its state. In float32, a layer's adapter still computes in its old
dtype: if the program has no autocast on, one is put around the layer. A loss scaler is left as it is."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import get_ident
from typing import Any

import torch
from torch import nn

from ..capture import private
from ..capture.calls import dtype_name
from .adapters import Adapter, find_adapters, narrow, to_float32
from .meter import Meter
from .verdict import AS_THEY_ARE, UNTRAINED, Measured


class Adapters:
    """Finds, converts and measures. ``how`` is one of ``lora.verdict``'s three runs; ``event_of``: see ``Meter``."""

    def __init__(self, how: str, event_of: Callable[[Any], int]) -> None:
        self.how = how
        self.meter = Meter(event_of=event_of)
        self.optimizers: list[Any] = []
        self.computes = ""
        self._known: set[int] = set()
        self._layers: dict[int, tuple[nn.Module, torch.dtype, list[nn.Parameter]]] = {}
        self._entered: dict[int, list[tuple[nn.Module, torch.autocast]]] = {}
        self._start: dict[str, torch.Tensor] = {}
        self._loss = 0.0
        self._scaler: Any = None
        self._scaled: tuple[Any, float] | None = None
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        self._wrap(torch.optim.Optimizer, "add_param_group", self._given)
        self._wrap(torch.amp.GradScaler, "scale", self._scales)
        self._wrap(torch.amp.GradScaler, "step", self._scaler_steps)
        handles = [
            private.register_optimizer_step_pre_hook(self._step_begins),
            private.register_optimizer_step_post_hook(self._step_ends),
        ]
        if self.how != AS_THEY_ARE:
            # always_call: checkpoint leaves a recomputed layer by an exception
            handles += [
                private.register_module_forward_pre_hook(self._enters),
                private.register_module_forward_hook(self._leaves, always_call=True),
            ]
        self._undo += [handle.remove for handle in handles]

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: type, name: str, around: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs)

        setattr(owner, name, wrapped)
        self._undo.append(lambda: setattr(owner, name, original))

    # ------------------------------------------------------------ finding them

    def _given(self, original: Callable[..., Any], optimizer: Any, param_group: dict[str, Any]) -> Any:
        """Called when an optimizer gets parameters, at its creation or later."""
        if isinstance(param_group, dict) and not isinstance(param_group.get("params", ()), (torch.Tensor, set)):
            param_group["params"] = list(param_group["params"])  # a generator can be read only once
            members = (p[1] if isinstance(p, tuple) else p for p in param_group["params"])
            with private.DisableTorchFunction(), private.DisableTorchDispatch():
                try:
                    self._look([p for p in members if isinstance(p, torch.Tensor)])
                except Exception as error:  # the program's optimizer must still be made
                    print(f"dtypetrace: adapters were not looked for: {error!r}", file=sys.stderr)
        done = original(optimizer, param_group)
        self._trains(optimizer)
        return done

    def _look(self, parameters: list[torch.Tensor]) -> None:
        for model in _models_of(parameters):
            try:
                found = find_adapters(model)
            except ValueError:  # none
                continue
            new = []
            for adapter in found:
                fresh = {n: p for n, p in adapter.parameters.items() if id(p) not in self._known}
                if fresh.keys() & self.meter.parameters.keys():  # from another model with the same names
                    prefix = f"{type(model).__name__}."
                    adapter, fresh = Adapter(prefix + adapter.name), {prefix + n: p for n, p in fresh.items()}
                if fresh:
                    new.append(Adapter(adapter.name, fresh))
                    self._known.update(map(id, fresh.values()))
            self._lay(model, new)
            if self.how != AS_THEY_ARE:
                to_float32(new)
            self.meter.add(new)

    def _lay(self, model: nn.Module, adapters: list[Adapter]) -> None:
        """Remembers the module in which each parameter computes: the innermost one around it that has a forward of its
        own."""
        above = {id(child): module for module in model.modules() for child in module.children()}
        owner = {id(p): module for module in model.modules() for p in module._parameters.values() if p is not None}
        for parameter in (p for a in adapters for p in a.parameters.values()):
            layer = owner.get(id(parameter))
            while layer is not None and type(layer).forward is nn.Module.forward:  # a container
                layer = above.get(id(layer))
            if layer is not None:
                self._layers.setdefault(id(layer), (layer, parameter.dtype, []))[2].append(parameter)

    # ------------------------------------------------------------ computing in the old dtype

    def _enters(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        known = self._layers.get(id(module))
        if known is None:
            return
        _, dtype, parameters = known
        with private.DisableTorchFunction(), private.DisableTorchDispatch():
            if narrow(parameters) and private.current_graph_task_id() == -1:  # the program has cast them again
                to_float32([Adapter("", {str(i): p for i, p in enumerate(parameters)})])
            device = parameters[0].device.type
        if torch.is_autocast_enabled(device):
            self.computes = dtype_name(torch.get_autocast_dtype(device))
            return
        if dtype.itemsize >= 4:
            return
        self.computes = dtype_name(dtype)
        autocast = torch.autocast(device, dtype=dtype)
        autocast.__enter__()
        self._entered.setdefault(get_ident(), []).append((module, autocast))

    def _leaves(self, module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        entered = self._entered.get(get_ident())
        while entered and any(m is module for m, _ in entered):
            left, autocast = entered.pop()
            autocast.__exit__(None, None, None)
            if left is module:
                break

    # ------------------------------------------------------------ the optimizer's steps

    def backward(self, first: Any, value: float) -> None:
        """A backward pass begins from a value; the values of several passes before a step add up to its loss."""
        scale = self._scaled[1] if self._scaled is not None and self._scaled[0]() is first else 1.0
        self._loss += value / scale

    def _scales(self, original: Callable[..., Any], scaler: Any, outputs: Any) -> Any:
        made = original(scaler, outputs)
        if isinstance(made, torch.Tensor) and scaler.is_enabled():
            self._scaled = weakref.ref(made), scaler.get_scale()
        return made

    def _scaler_steps(
        self, original: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A scaler skips the step where gradients are infinite."""
        if scaler.is_enabled():
            self._scaler = scaler
        before = len(self.meter.losses)
        done = original(scaler, optimizer, *args, **kwargs)
        if len(self.meter.losses) == before and scaler.is_enabled() and self._trains(optimizer):
            self._begins(optimizer, left_out=True)
            self.meter.ends()
        return done

    def _trains(self, optimizer: Any) -> bool:
        """Whether an optimizer holds any parameter of the adapters."""
        if not any(id(p) in self._known for group in getattr(optimizer, "param_groups", ()) for p in group["params"]):
            return False
        if not any(o is optimizer for o in self.optimizers):
            self.optimizers.append(optimizer)
        return True

    def _step_begins(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._trains(optimizer):
            return
        self.meter.watch_writes(False)  # still on after a step that raised
        infinite = getattr(optimizer, "found_inf", None)  # a fused step checks by itself
        with private.DisableTorchFunction(), private.DisableTorchDispatch():
            left_out = infinite is not None and bool(infinite)
        self._begins(optimizer, left_out)
        self.meter.watch_writes(True)

    def _begins(self, optimizer: Any, left_out: bool) -> None:
        scale = getattr(optimizer, "grad_scale", None)
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), torch.no_grad():
            if self.how == UNTRAINED:
                self._start = {n: p.detach().clone() for n, p in self.meter.parameters.items()}
            self.meter.begins(torch.tensor(self._loss), optimizer, left_out, float(scale) if scale is not None else 1.0)
        self._loss = 0.0

    def _step_ends(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._trains(optimizer):
            return
        self.meter.watch_writes(False)
        self.meter.ends()
        with private.DisableTorchFunction(), private.DisableTorchDispatch(), torch.no_grad():
            for name, values in self._start.items():
                self.meter.parameters[name].data.copy_(values)
            self._start = {}

    def read(self, ended: str) -> Measured | None:
        """What was measured; None where no optimizer got an adapter. ``ended``: the error that ended the program."""
        if not self.meter.parameters:
            return None
        scale = float(self._scaler.get_scale()) if self._scaler is not None else 0.0
        return replace(self.meter.read(self.how, self.optimizers, scale, ended), computes=self.computes)


def _models_of(parameters: Iterable[torch.Tensor]) -> list[nn.Module]:
    """The outermost modules that are alive and hold any of these parameters."""
    wanted = {id(p) for p in parameters}
    modules = [o for o in gc.get_objects() if issubclass(type(o), nn.Module) and "_modules" in vars(o)]
    inner = {id(child) for module in modules for child in module._modules.values()}
    return [m for m in modules if id(m) not in inner and any(id(p) in wanted for p in m.parameters())]
