"""torch's fused paths of attention modules in evaluation: taken as without a trace, bit for bit, and seen as one call."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import dtypetrace

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
LAYER, ATTENTION = "_transformer_encoder_layer_fwd", "_native_multi_head_attention"
PADDED = torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]]).bool()


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*nested tensors")
        yield


def frames(dtype=F32):
    return torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1)).to(dtype)


def encoder(dtype=F32, **options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 2, **options).to(dtype).eval()


def attention(dtype=F32):
    torch.manual_seed(0)
    return nn.MultiheadAttention(16, 2, batch_first=True).to(dtype).eval()


def alike(values):
    return [v for v in values if isinstance(v, torch.Tensor)] if isinstance(values, tuple) else [values]


HEALTHY = {
    "encoder": (LAYER, lambda: encoder()(frames()), None),
    "nested by a padding mask": (LAYER, lambda: encoder()(frames(), src_key_padding_mask=PADDED), None),
    "not nested": (LAYER, lambda: encoder(enable_nested_tensor=False)(frames(), src_key_padding_mask=PADDED), None),
    "in bfloat16": (LAYER, lambda: encoder(BF16)(frames(BF16), src_key_padding_mask=PADDED), None),
    "under autocast": (LAYER, lambda: encoder()(frames()), BF16),
    "under autocast, with a mask": (LAYER, lambda: encoder()(frames(), mask=torch.zeros(5, 5)), BF16),
    "a layer alone": (LAYER, lambda: encoder().layers[0](frames()), F16),
    "attention": (ATTENTION, lambda: attention()(*[frames()] * 3), None),
    "attention under autocast": (ATTENTION, lambda: attention()(*[frames()] * 3, need_weights=False), BF16),
}


def computed(program, autocast, grad=False):
    region = torch.autocast("cpu", autocast) if autocast else contextlib.nullcontext()
    with torch.set_grad_enabled(grad), region:
        return alike(program())


@pytest.mark.parametrize(("function", "program", "autocast"), HEALTHY.values(), ids=HEALTHY)
def test_a_fused_path_is_taken_with_the_same_bits_and_is_one_call(function, program, autocast):
    plain = computed(program, autocast)
    with dtypetrace.trace(precision="values") as t:
        watched = computed(program, autocast)
    assert all(torch.equal(a, b) and a.dtype is b.dtype for a, b in zip(plain, watched, strict=True))
    assert {op.op for op in t.recording.ops} >= {function} and "linear" not in {op.op for op in t.recording.ops}
    assert all(
        op.autocast == (f"cpu:{autocast}".replace("torch.", "") if autocast else "") for op in calls(t, function)
    )
    assert list(t.recording.not_seen) == [f"inside {function}, torch's fused path: it is recorded as one call"]
    assert not t.findings
    assert torch.overrides.has_torch_function is torch._C._has_torch_function


def calls(t, function):
    return [op for op in t.recording.ops if op.op == function]


def test_an_autocast_call_has_its_operands_and_its_result():
    with dtypetrace.trace() as t:
        computed(lambda: encoder()(frames()), BF16)
    first, second = calls(t, LAYER)
    assert first.outputs == second.outputs == ("bfloat16",)
    assert first.inputs[0].dtype == "float32" and second.inputs[0].dtype == "bfloat16"
    assert {i.holder for i in first.inputs[1:]} == {"parameter"}


class Passing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("why", ["a gradient is wanted", "a function mode of the program's own", "training"])
def test_where_the_program_does_not_take_it_the_plain_path_is_seen(why):
    def program():
        model = encoder()
        if why == "training":
            model.train()
        with Passing() if "mode" in why else contextlib.nullcontext():
            return model(frames())

    torch.manual_seed(3)
    plain = computed(program, None, grad="gradient" in why)
    with dtypetrace.trace() as t:
        torch.manual_seed(3)
        watched = computed(program, None, grad="gradient" in why)
    assert torch.equal(*plain, *watched) and not calls(t, LAYER)
    assert torch.overrides.has_torch_function is torch._C._has_torch_function


def test_what_an_exception_leaves_is_put_back():
    with dtypetrace.trace(), pytest.raises(RuntimeError):
        computed(lambda: encoder(BF16)(frames()), None)
    assert torch.overrides.has_torch_function is torch._C._has_torch_function


# ---------------------------------------------------------------- refusals inside


def refused(program, autocast=None):
    with pytest.raises(RuntimeError) as alone:
        computed(program, autocast)
    with pytest.raises(RuntimeError) as watched, dtypetrace.trace() as t:
        computed(program, autocast)
    assert str(alone.value) == str(watched.value)
    (found,) = (f for f in t.findings if f.kind == "collision")
    return found


def test_a_refusal_inside_has_both_operands_and_the_birth():
    def program():
        model = encoder(BF16)
        given = torch.randn(2, 5, 16)  # born here
        return model(given)

    found = refused(program)
    assert {o.dtype for o in found.operands} == {"float32", "bfloat16"} and found.culprit.dtype == "float32"
    assert found.op == LAYER and found.culprit.origin.op == "randn"
    assert [e.after for e in found.fix.edits] and "dtype=torch.bfloat16" in found.fix.edits[0].after


def test_nested_tensors_and_autocast_are_refused_as_alone_and_the_encoder_can_pad_instead():
    def program():
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        model = nn.TransformerEncoder(layer, 1).eval()
        return model(frames(), src_key_padding_mask=PADDED)

    found = refused(program, BF16)
    assert found.principle == "fused path" and "does not take this autocast" in found.title
    assert "enable_nested_tensor=False" in found.fix.why


def test_half_weights_under_autocast_in_the_other_half():
    found = refused(lambda: encoder(BF16)(frames(BF16)), F16)
    assert found.principle == "fused path" and found.fix.why == "let autocast compute in bfloat16, as the weights are"


@pytest.mark.parametrize(("program", "autocast"), [
    (lambda: encoder()(frames(), src_key_padding_mask=PADDED), BF16),
    (lambda: encoder(BF16)(frames(), src_key_padding_mask=PADDED), None),
    (lambda: encoder(BF16)(frames(BF16)), F16),
])  # fmt: skip
def test_a_refused_fused_call_is_healed(program, autocast):
    with dtypetrace.trace(autofix=True) as t:
        (out,) = computed(program, autocast)
    assert torch.isfinite(out).all() and [f.kind for f in t.findings if f.severity == "error"] == ["collision"]
