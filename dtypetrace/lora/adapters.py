"""The adapters of a model: found by structure and by name, converted to float32, and restored exactly.

PEFT, and libraries that build on it, declare which attributes of a layer belong to the adapter
(``adapter_layer_names``). Others are recognised by the names that adapter files share (``lora_down`` and ``lora_up``,
``lora_A`` and ``lora_B``, ``hada_w1_a``, ``lokr_w1``, ``dora_scale``). Where neither helps, trainable weights next to
frozen ones are the adapters."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from ..capture.module_names import clean_name

_ROLE = re.compile(
    r"lora_(down|up|mid|[ABEab]|embedding_[AB]|magnitude\w*)|dora_\w+|(hada|lokr)_[wt]\w*|b?oft_\w+|ia3_l"
)
"""One matrix of an adapter, by the name of its module or parameter."""
_KIND = re.compile(r"(.*_)?(lora|loha|lokr|dora|locon|lycoris|adapter)(_.*)?", re.IGNORECASE)
_SIDES = {"down", "up", "mid", "a", "b"}


@dataclass
class Adapter:
    """The matrices that are trained in addition to one layer. name: the layer; parameters: by qualified name, frozen
    ones too."""

    name: str
    parameters: dict[str, nn.Parameter] = field(default_factory=dict)


def find_adapters(model: nn.Module) -> list[Adapter]:
    """The adapters of a model, in the order of its parameters; of PEFT's only those that are active.

    Raises ValueError where none are found: no adapter by structure or name, and nothing trainable next to something
    frozen."""
    found: dict[str, Adapter] = {}
    declared, passive = _declared(model)
    unnamed = []
    for name, parameter in model.named_parameters():
        if not parameter.dtype.is_floating_point or id(parameter) in passive:
            continue
        name = clean_name(name, model)
        home = declared.get(id(parameter)) or _home(name)
        if home is not None:
            found.setdefault(home, Adapter(home)).parameters[name] = parameter
        elif parameter.requires_grad:
            unnamed.append((name, parameter))
    if not found and any(not p.requires_grad for p in model.parameters()):
        for name, parameter in unnamed:
            home = name.rpartition(".")[0] or name
            found.setdefault(home, Adapter(home)).parameters[name] = parameter
    if not found:
        raise ValueError(
            f"no adapters in {type(model).__name__}: nothing is called lora_down, lora_up, lora_A or the like, "
            "and no trainable weights are next to frozen ones; "
            "pass the module that holds the adapters (nn.ModuleList([base, adapters]) where they are outside the base)"
        )
    return list(found.values())


def _declared(model: nn.Module) -> tuple[dict[int, str], set[int]]:
    """The parameters that a layer declares as its adapter's: id -> the layer's name; and the parameters of inactive
    adapters."""
    active, passive = {}, set()
    for name, module in model.named_modules():
        for attribute in getattr(module, "adapter_layer_names", None) or ():
            inside = getattr(module, attribute, None)
            if not isinstance(inside, nn.Module):
                continue
            used = getattr(module, "active_adapters", None)
            for key, parameter in inside.named_parameters():
                if used and hasattr(inside, "keys") and key.partition(".")[0] not in used:
                    passive.add(id(parameter))
                else:
                    active[id(parameter)] = clean_name(name, model)
    return active, passive - set(active)


def _home(name: str) -> str | None:
    """The part of a parameter's name that names its adapter, None where it belongs to no adapter."""
    parts = name.split(".")
    for index in reversed(range(len(parts))):
        if _ROLE.fullmatch(parts[index]):
            return ".".join(parts[:index]) or parts[index]
        if _KIND.fullmatch(parts[index]) and index + 1 < len(parts) and parts[index + 1].lower() in _SIDES:
            return ".".join(parts[: index + 1])
    return None


def narrow(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """The parameters whose dtype is narrower than float32."""
    return [p for p in parameters if p.dtype.is_floating_point and p.dtype.itemsize < 4]


def to_float32(adapters: Iterable[Adapter]) -> int:
    """Converts the adapters' weights and existing gradients to float32; returns how many parameters that changed.

    The Parameter objects stay the same, so optimizers that hold them, tied weights and hooks go on working.
    """
    changed = narrow(p for adapter in adapters for p in adapter.parameters.values())
    for parameter in changed:
        gradient, parameter.grad = parameter.grad, None
        parameter.data = parameter.data.float()
        if gradient is not None:
            parameter.grad = gradient.float()
    return len(changed)


# ---------------------------------------------------------------- restoring the model


class Snapshot:
    """Everything that training changes in a model: weights that are trained or belong to an adapter, their dtypes and
    gradients, buffers, modes, and the random number states of Python, numpy and torch on the model's devices."""

    def __init__(self, model: nn.Module, adapters: Iterable[Adapter]) -> None:
        chosen = {id(p): p for p in model.parameters() if p.requires_grad}
        chosen |= {id(p): p for adapter in adapters for p in adapter.parameters.values()}
        self._weights = [(p, p.data, p.detach().clone(), p.grad, p.requires_grad) for p in chosen.values()]
        self._buffers = [
            (m, n, b, b.detach().clone()) for m in model.modules() for n, b in m._buffers.items() if b is not None
        ]
        self._modes = [(m, m.training) for m in model.modules()]
        self._random = list(_random_states({p.device for p in model.parameters()}))

    def rewind(self) -> None:
        """Restores the values, in the dtypes that the weights have now, and removes the gradients."""
        with torch.no_grad():
            for parameter, _, values, *_ in self._weights:
                parameter.grad = None
                parameter.data.copy_(values)
            for module, name, buffer, values in self._buffers:
                module._buffers[name] = buffer
                buffer.copy_(values)
        for module, training in self._modes:
            module.training = training

    def restore(self) -> None:
        """Restores everything: the same tensors in the same memory, with the same values."""
        for parameter, data, _, _, requires_grad in self._weights:
            parameter.grad = None
            parameter.data = data
            parameter.requires_grad_(requires_grad)
        self.rewind()
        for parameter, _, _, gradient, _ in self._weights:
            parameter.grad = gradient
        for put_back, state in self._random:
            put_back(state)


def _random_states(devices: set[torch.device]) -> Iterator[tuple[Callable[[Any], Any], Any]]:
    """Each source of random numbers: the function that sets its state, and its state now."""
    yield random.setstate, random.getstate()
    if numpy := sys.modules.get("numpy"):
        yield numpy.random.set_state, numpy.random.get_state()
    yield torch.set_rng_state, torch.get_rng_state()
    for device in devices:
        of_type: Any = getattr(torch, device.type, None)
        if device.type not in ("cpu", "meta") and hasattr(of_type, "get_rng_state"):
            if device.type == "mps":
                yield of_type.set_rng_state, of_type.get_rng_state()
            else:
                yield partial(of_type.set_rng_state, device=device), of_type.get_rng_state(device)


def seed_all(seed: int) -> None:
    """Seeds Python's, numpy's and torch's random numbers, on every device."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
