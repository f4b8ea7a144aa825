"""Classes of tensors are constructed with a trace as without."""

from __future__ import annotations

import pickle
from inspect import unwrap

import numpy as np
import pytest
import torch
from harmless import outcome, quick, whole  # noqa: F401 - fixtures
from torch import nn

import dtypetrace


class Inherits(torch.Tensor):
    pass


class Annotated(torch.Tensor):
    """As torch's page on extending it has them."""

    def __new__(cls, data, label="none"):
        return super().__new__(cls, data)

    def __init__(self, data, label="none"):
        self.label = label


class Named(torch.Tensor):
    def __new__(cls, *sizes):
        return torch.Tensor.__new__(cls, *sizes)


class Refuses(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.add:
            raise NotImplementedError("no sums")
        return super().__torch_function__(func, types, args, kwargs or {})


def trained():
    weight = nn.Parameter(torch.ones(3))
    wrapped = Annotated(weight * 2, "doubled")
    (wrapped * torch.arange(3.0)).sum().backward()
    return wrapped, wrapped.label, wrapped.requires_grad, weight.grad


def causal_bias():
    bias = pytest.importorskip("torch.nn.attention.bias").causal_lower_right(4, 6)
    q, k = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 6, 8)
    return nn.functional.scaled_dot_product_attention(q, k, k, bias), type(bias).__name__


def refused():
    with pytest.raises(TypeError) as raised:
        Inherits("abc")
    return str(raised.value)


def kept():
    first = Inherits([1.0, 2.0])
    return [pickle.loads(pickle.dumps(first)), first.new_zeros(2), Inherits(first), first * 2]


FORMS = {
    "numbers": lambda: Inherits([1.0, 2.0]),
    "sizes": lambda: (Inherits(2, 3).shape, Inherits(torch.Size([2])).shape, Inherits().shape),
    "a tensor": lambda: (Inherits(torch.arange(3)), Inherits(torch.ones(2).bfloat16())),
    "an array": lambda: Inherits(np.arange(3.0)),
    "shared memory": lambda: Inherits(storage := torch.ones(2).untyped_storage()).untyped_storage()[0] == storage[0],
    "super().__new__": lambda: Annotated(torch.ones(2), label="a").label,
    "Tensor.__new__": lambda: Named(2, 3).shape,
    "mapped in C": lambda: list(map(Inherits, ([1.0], [2.0]))),
    "a __torch_function__": lambda: Refuses([1.0]) * 2,
    "no such constructor": refused,
    "trained": trained,
    "a causal bias": causal_bias,
    "kept": kept,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_class_of_tensors_is_constructed(form):
    untraced = outcome(FORMS[form])
    trace = dtypetrace.trace()
    assert outcome(FORMS[form], trace) == untraced
    whole(trace)


def test_what_a_constructor_makes_has_a_line_of_birth():
    with dtypetrace.trace() as trace:
        default = Inherits([1.0, 2.0])
        with pytest.raises(RuntimeError):
            nn.Linear(2, 2, dtype=torch.bfloat16)(default)
    (finding,) = trace.findings
    assert "Inherits() returns float32" in repr(trace)
    assert finding.culprit.dtype == "float32"


def test_what_is_given_to_a_constructor_keeps_its_birth():
    with dtypetrace.trace() as trace:
        given = torch.ones(2, dtype=torch.float64)
        with pytest.raises(RuntimeError):
            nn.Linear(2, 2)(Annotated(given))
    assert "ones() returns float64" in repr(trace) or "dtype=torch.float64" in repr(trace)


def test_torch_keeps_its_own_constructor_in_its_tables():
    before = torch.Tensor.__new__
    with dtypetrace.trace():
        assert torch.Tensor.__new__ is Inherits.__new__ is not before
        assert before in unwrap(torch.overrides.get_ignored_functions)()
    assert torch.Tensor.__new__ is before
    assert "__new__" not in vars(torch.Tensor)
