"""PyTorch's own tests of its modules and losses, as far as the installed package has them (``common_nn``).

``tools.torch_tests`` runs this file as it runs a test file of PyTorch's. Each test compares a module with a reference, its
gradients with numerical ones, and itself after a round trip through pickle.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.testing._internal.common_nn import (
    CriterionTest,
    NewModuleTest,
    NNTestCase,
    criterion_tests,
    get_new_module_tests,
    module_tests,
)


class TestModules(NNTestCase):
    """What torch's tests call on their test case."""

    def _forward(self, module: Any, arguments: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return module(*arguments) if isinstance(arguments, tuple) else module(arguments)

    def _backward(self, module: Any, arguments: Any, output: Any, gradient: Any, create_graph: bool = False) -> Any:
        output.backward(gradient, retain_graph=True, create_graph=create_graph)
        if isinstance(arguments, tuple):
            return tuple(a.grad.data if a.grad is not None else None for a in arguments)
        return arguments.grad.data if arguments.grad is not None else None

    def _forward_criterion(self, criterion: Any, x: Any, target: Any, extra_args: Any = ()) -> Any:
        return criterion(*(x if isinstance(x, tuple) else (x,)), target, *(extra_args or ()))

    def _backward_criterion(
        self, criterion: Any, x: Any, output: Any, target: Any, gradient: Any = None, extra_args: Any = ()
    ) -> Any:
        inputs = x if isinstance(x, tuple) else (x,)
        for one in inputs:
            if one.grad is not None:
                one.grad.data.zero_()
        criterion(*inputs, target, *(extra_args or ())).backward(torch.ones(()) if gradient is None else gradient)
        return tuple(one.grad.data for one in inputs) if isinstance(x, tuple) else x.grad.data

    def _get_parameters(self, module: Any) -> Any:
        return list(module.parameters()), [p.grad for p in module.parameters()]

    def _zero_grad_parameters(self, module: Any) -> None:
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad.detach_().zero_()


def _add(kind: Any, parameters: dict[str, Any]) -> None:
    chosen = {k: v for k, v in parameters.items() if k not in ("module_name", "decorator")}
    chosen.setdefault("constructor", getattr(torch.nn, parameters.get("module_name", ""), None))
    test = kind(**chosen)
    name = f"{test.get_name()}_{len(vars(TestModules))}"
    setattr(TestModules, name, lambda self: test(self))


for _parameters in [*module_tests, *get_new_module_tests()]:
    _add(NewModuleTest, _parameters)
for _parameters in criterion_tests:
    _add(CriterionTest, _parameters)
