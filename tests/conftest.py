"""After every test nothing of dtypetrace's may be left in the process; under CI nothing but a GPU may be missing."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import warnings

import pytest

# A CPU with float16 arithmetic of its own flushes other gradients to zero; all machines compute as most do.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# The tests' tensors are tiny: more threads of one operator only wait for each other, which takes most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts a background job with these two ignored, and the programs that the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def installed() -> list[str]:
    """What a trace, or a test, has left behind; looks only at what is imported already."""
    found = []
    torch = sys.modules.get("torch")
    if torch is None:
        return found
    if torch._C._len_torch_function_stack():
        found.append("a torch function mode")
    if torch._C._len_torch_dispatch_stack():
        found.append("a torch dispatch mode")
    if not torch._C._is_torch_function_enabled():
        found.append("torch functions that no mode sees")
    for module in (torch.nn.modules.module, sys.modules["torch.optim.optimizer"]):
        found += [
            name
            for name, value in vars(module).items()
            if name.startswith("_global_") and isinstance(value, dict) and value
        ]
    patched = {
        "torch.compile": torch.compile,
        "torch.set_default_dtype": torch.set_default_dtype,
        "torch._C._set_default_dtype": torch._C._set_default_dtype,
        "torch._C._log_api_usage_once": torch._C._log_api_usage_once,
        "_has_any_global_hook": torch.nn.modules.module._has_any_global_hook,
        "Parameter.__new__": torch.nn.Parameter.__new__,
        "warnings._showwarnmsg": warnings._showwarnmsg,
        "warnings.showwarning": warnings.showwarning,
    }
    found += [
        name
        for name, function in patched.items()
        if "dtypetrace" in getattr(function, "__globals__", {}).get("__name__", "")
    ]
    if any("dtypetrace" in getattr(module, "pattern", "") for *_, module, _ in warnings.filters):
        found.append("a warnings filter")
    if "__new__" in vars(torch.Tensor):
        found.append("a constructor of tensors")
    if torch.get_default_dtype() is not torch.float32:
        found.append("a default dtype")
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is not None and dynamo._stance.stance != "default":
        found.append(f"the {dynamo._stance.stance} stance")
    trace = sys.modules.get("dtypetrace.tracing")
    if trace is not None and trace._open:
        found.append("an open trace")
    return found


@pytest.fixture(autouse=True)
def nothing_stays_installed():
    before = installed()  # what an earlier test left behind is that test's failure
    yield
    assert [what for what in installed() if what not in before] == []


@pytest.fixture(autouse=True)
def random_numbers_of_its_own():
    """What a test draws does not depend on the tests that ran before it in its process."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(0)  # no device is asked, as torch.manual_seed would


@pytest.fixture(autouse=True)
def own_failures_are_raised(monkeypatch):
    """Outside the tests a part of dtypetrace that fails is left out and reported; here it fails the test."""
    from dtypetrace import parts

    def raised(part, failure):
        raise failure

    monkeypatch.setattr(parts, "_sentence", raised)


def pytest_collection_finish():
    """The collector passes over what was imported until now: many tests collect, and would look at all of it each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if (
        os.environ.get("CI")
        and report.skipped
        and not hasattr(report, "wasxfail")
        and item.get_closest_marker("gpu") is None
    ):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} was to be skipped under CI: {call.excinfo.value}"
    return report
