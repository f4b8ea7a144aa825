"""Retraining of adapters: the verdict is right before, and float32 is confirmed only where it learns."""

from __future__ import annotations

import importlib.util
import random
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from adapters import Adapted, llama, llama_loss, loss_of, network, unet, unet_loss
from torch import nn
from torch.optim import SGD, Adafactor, AdamW

import dtypetrace


@pytest.fixture(autouse=True)
def one_thread():
    """For matrices this small, several threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(module: str, name: str, **settings):
    """An optimizer of a library that is there, as a function of the parameters."""

    def make(parameters):
        return getattr(pytest.importorskip(module), name)(parameters, **settings)

    return make


def befores(result) -> set[str]:
    return {v.before.verdict for v in result.adapters}


def afters(result) -> set[str]:
    return {v.after.verdict for v in result.adapters}


# ---------------------------------------------------------------- what each optimizer does to float16 weights

# gradients a third as large as the loss gives: of the size at which SGD's updates of float16 are lost
ROWS = [
    ("Prodigy", made("prodigyopt", "Prodigy", lr=1.0), "state underflow"),
    ("DAdaptAdam", made("dadaptation", "DAdaptAdam", lr=1.0), "state underflow"),
    ("AdamW", partial(AdamW, lr=1e-4, foreach=False), "state underflow"),
    ("AdamW, foreach", partial(AdamW, lr=1e-4, foreach=True), "state underflow"),
    ("AdamW, fused", partial(AdamW, lr=1e-4, fused=True), "overshoot"),
    ("SGD", partial(SGD, lr=1e-4), "below resolution"),
    (
        "Adafactor of transformers",
        made("transformers.optimization", "Adafactor", lr=1e-4, relative_step=False, scale_parameter=False),
        "healthy",
    ),
    ("Adafactor of transformers, relative", made("transformers.optimization", "Adafactor"), "healthy"),
    ("AdamW of bitsandbytes", made("bitsandbytes.optim", "AdamW", lr=1e-4), "healthy"),
    ("AdamW8bit", made("bitsandbytes.optim", "AdamW8bit", lr=1e-4, min_8bit_size=16), "healthy"),
    ("Lion", made("lion_pytorch", "Lion", lr=1e-4), "healthy"),
]


@pytest.mark.parametrize(("make_optimizer", "before"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_float16_adapters_and_their_cure(make_optimizer, before):
    model = network()
    result = dtypetrace.retrain_lora(model, lambda m: loss_of(m, 1 / 3), make_optimizer=make_optimizer, steps=12)
    assert befores(result) == {before}
    assert afters(result) == {"healthy"}
    assert result.confirmed, result.why
    assert result.before.dtype == "float16" and result.after.dtype == "float32" and result.computes == "float16"


def test_adafactor_of_torch():
    """A small gradient: nothing arrives. A larger one: its up matrix moves, and the down matrix's gradient underflows."""
    make = partial(Adafactor, lr=1e-4)
    small = dtypetrace.retrain_lora(network(), lambda m: loss_of(m, 1 / 30), make_optimizer=make, steps=6)
    assert befores(small) == {"below resolution"} and small.confirmed
    larger = dtypetrace.retrain_lora(network(), loss_of, make_optimizer=make, steps=6)
    assert befores(larger) == {"gradient underflow"} and larger.confirmed


@pytest.mark.parametrize(
    "base", [partial(AdamW, fused=True), partial(AdamW, foreach=False), SGD], ids=["fused", "AdamW", "SGD"]
)
def test_another_name_changes_no_verdict(base):
    settings = {"lr": 1e-4} | (base.keywords if isinstance(base, partial) else {})
    kind = base.func if isinstance(base, partial) else base
    named = type("Lion", (kind,), {})
    verdicts = []
    for optimizer in (kind, named):
        result = dtypetrace.retrain_lora(
            network(), lambda m: loss_of(m, 1 / 3), make_optimizer=partial(optimizer, **settings), steps=8
        )
        verdicts.append([(v.before.verdict, v.after.verdict) for v in result.adapters])
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][0][0] != "healthy"


def test_a_renamed_prodigy():
    prodigyopt = pytest.importorskip("prodigyopt")
    renamed = type("AdamW", (prodigyopt.Prodigy,), {})
    result = dtypetrace.retrain_lora(network(), loss_of, make_optimizer=partial(renamed, lr=1.0), steps=4)
    assert befores(result) == {"state underflow"} and result.confirmed
    assert "changed no number" in result.why
    assert all(max(s.zeros for s in v.before.state if s.name == "exp_avg_sq") == 1 for v in result.adapters)


def test_bfloat16_under_adamw():
    result = dtypetrace.retrain_lora(network(torch.bfloat16), loss_of, make_optimizer=partial(AdamW, lr=1e-4), steps=6)
    assert befores(result) == {"below resolution"} and result.confirmed
    assert result.computes == "bfloat16" and result.after.scale == 0  # bfloat16 needs no scaler
    side = result.adapters[0].before
    assert side.change < side.resolution


def test_a_scaler_refuses_float16_gradients():
    result = dtypetrace.retrain_lora(
        network(), loss_of, make_optimizer=AdamW, steps=3, scaler=torch.amp.GradScaler("cpu")
    )
    assert befores(result) == {"refused"} and result.confirmed
    assert "Attempting to unscale FP16 gradients" in result.before.ended


def test_float32_adapters_need_no_cure():
    result = dtypetrace.retrain_lora(network(torch.float32), loss_of, make_optimizer=AdamW, steps=3)
    assert befores(result) == afters(result) == {"healthy"} and result.confirmed
    assert result.computes == ""


# ---------------------------------------------------------------- look-alikes


def frozen(model):
    model[2].requires_grad_(False)


def detached(model):
    model[2].detached = True


def all_frozen(model):
    model.requires_grad_(False)


def all_detached(model):
    model[0].detached = model[2].detached = True


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("change", "verdict", "count"),
    [(frozen, "frozen", 1), (all_frozen, "frozen", 2), (detached, "no gradient", 1), (all_detached, "no gradient", 2)],
)
def test_no_gradient_path_is_never_confirmed(dtype, change, verdict, count):
    model = network(dtype)
    change(model)
    result = dtypetrace.retrain_lora(model, loss_of, make_optimizer=AdamW, steps=3)
    assert not result.confirmed
    assert [v.after.verdict for v in result.adapters].count(verdict) == count
    assert [v.before.verdict for v in result.adapters].count(verdict) == count


def test_a_learning_rate_of_zero():
    for lr in (0.0, torch.tensor(0.0)):
        result = dtypetrace.retrain_lora(
            network(), loss_of, make_optimizer=partial(AdamW, lr=lr, foreach=False), steps=3
        )
        assert afters(result) == {"no learning rate"} and not result.confirmed


def test_an_optimizer_that_holds_other_weights():
    model = network()
    result = dtypetrace.retrain_lora(model, loss_of, make_optimizer=lambda: AdamW(model[0].parameters()), steps=3)
    assert [v.after.verdict for v in result.adapters] == ["healthy", "not in the optimizer"] and not result.confirmed


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_that_still_backs_off(fused):
    settings = dict(make_optimizer=partial(AdamW, lr=1e-4, fused=fused), autocast_dtype=torch.float16)
    settings["scaler"] = torch.amp.GradScaler("cpu", init_scale=2.0**60)
    result = dtypetrace.retrain_lora(network(torch.float32), loss_of, steps=4, **settings)
    assert afters(result) == {"scaler backing off"} and not result.confirmed
    assert result.after.skipped == 4 and result.after.scale == 2.0**56
    assert settings["scaler"].get_scale() == 2.0**60  # the program's own is untouched
    settings["scaler"] = torch.amp.GradScaler("cpu", init_scale=2.0**29)  # one step is taken at last
    late = dtypetrace.retrain_lora(network(torch.float32), loss_of, steps=5, **settings)
    assert 0 < late.after.skipped < 5
    assert late.confirmed is (5 - late.after.skipped > 1)


def test_infinities_that_are_not_the_scalers():
    result = dtypetrace.retrain_lora(
        network(torch.float32),
        lambda m: loss_of(m) * float("nan"),
        make_optimizer=AdamW,
        steps=3,
        scaler=torch.amp.GradScaler("cpu"),
    )
    assert afters(result) == {"broken gradient"} and not result.confirmed


def test_decay_alone_is_no_learning():
    model = network(torch.float32)
    for module in (model[0], model[2]):
        nn.init.normal_(module.lora_up.weight)
    tiny = lambda m: loss_of(m, 1e-12)
    result = dtypetrace.retrain_lora(model, tiny, make_optimizer=partial(SGD, lr=1e-2, weight_decay=1e-2), steps=5)
    assert afters(result) == {"decay only"} and not result.confirmed
    learns = dtypetrace.retrain_lora(model, loss_of, make_optimizer=partial(AdamW, lr=1e-3, weight_decay=0.1), steps=5)
    assert learns.confirmed


@pytest.mark.parametrize(
    ("optimizer", "reason"),
    [(partial(SGD, lr=1e-3, maximize=True, momentum=0.9), "got worse"), (partial(SGD, lr=1e8), "infinite or NaN")],
)
def test_a_loss_that_gets_worse_is_no_learning(optimizer, reason):
    result = dtypetrace.retrain_lora(network(torch.float32), loss_of, make_optimizer=optimizer, steps=8)
    assert not result.confirmed
    assert reason in result.why


def test_a_gradient_that_is_infinite_once_is_no_proof():
    """The optimizer leaves such steps alone, so that nothing else shows."""

    class Careful(SGD):
        def step(self, closure=None):
            if all(p.grad.isfinite().all() for g in self.param_groups for p in g["params"]):
                super().step()

    calls = []

    def compute_loss(model):
        loss = loss_of(model)
        calls.append(loss)
        if len(calls) % 5 == 3:
            loss.register_hook(lambda g: g * float("inf"))
        return loss

    result = dtypetrace.retrain_lora(
        network(torch.float32), compute_loss, make_optimizer=partial(Careful, lr=1.0), steps=5
    )
    assert afters(result) == {"healthy"} and not result.confirmed
    assert "some gradients were infinite or NaN" in result.why


def test_a_gradient_of_zeros():
    result = dtypetrace.retrain_lora(network(), lambda m: loss_of(m, 0.0), make_optimizer=AdamW, steps=3)
    assert afters(result) == {"zero gradient"} and not result.confirmed


def test_adapters_outside_the_model():
    """Their modules take over the forward of the layers they adapt, as kohya's and OneTrainer's do."""
    base = nn.Sequential(nn.Linear(64, 64), nn.SiLU()).half().requires_grad_(False)
    lora = nn.Module()
    lora.lora_down, lora.lora_up = nn.Linear(64, 4, bias=False).half(), nn.Linear(4, 64, bias=False).half()
    nn.init.zeros_(lora.lora_up.weight)
    plain = base[0].forward
    base[0].forward = lambda x: plain(x) + lora.lora_up(lora.lora_down(x))
    both = nn.ModuleList([base, lora])
    result = dtypetrace.retrain_lora(
        both,
        lambda: base(torch.randn(8, 64).half()).float().pow(2).mean(),
        make_optimizer=made("prodigyopt", "Prodigy", lr=1.0),
        steps=4,
    )
    assert befores(result) == {"state underflow"} and result.confirmed, result.why
    assert [v.name for v in result.adapters] == ["1"]


def test_while_a_trace_is_open():
    model = network()
    with dtypetrace.trace(model, precision="values") as trace:
        result = dtypetrace.retrain_lora(model, loss_of, make_optimizer=partial(AdamW, lr=1e-4), steps=3)
    assert befores(result) == {"state underflow"} and result.confirmed
    assert trace.recording.updates


# ---------------------------------------------------------------- what is left behind


def state_of(model):
    values = [(p, p.data_ptr(), p.dtype, p.detach().clone(), p.grad, p.requires_grad) for p in model.parameters()]
    return (
        values,
        [b.clone() for b in model.buffers()],
        [m.training for m in model.modules()],
        torch.get_rng_state(),
        random.getstate(),
    )


def assert_unchanged(before, after):
    for (p, place, dtype, values, gradient, trained), (q, *now) in zip(before[0], after[0], strict=True):
        assert p is q and (place, dtype, trained) == (now[0], now[1], now[4])
        assert torch.equal(values, now[2]) and gradient is now[3]
    assert all(map(torch.equal, before[1], after[1]))
    assert before[2] == after[2]
    assert torch.equal(before[3], after[3]) and before[4] == after[4]


def with_everything():
    model = network()
    model.append(nn.BatchNorm1d(64, dtype=torch.float32, affine=False))
    loss_of(model).backward()
    model[0].eval()
    return model


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_restored(fails):
    model = with_everything()
    gradient = model[0].lora_up.weight.grad.clone()
    before, calls = state_of(model), []

    def compute_loss(m):
        calls.append(random.random())
        m.train()
        if fails and len(calls) in (3, 5, 7):
            raise RuntimeError("the program's own")
        return loss_of(m)

    if fails:
        with pytest.raises(RuntimeError, match="the program's own"):
            dtypetrace.retrain_lora(model, compute_loss, make_optimizer=AdamW, steps=2 + 1)
    else:
        dtypetrace.retrain_lora(model, compute_loss, make_optimizer=AdamW, steps=3)
        assert calls[:3] == calls[3:6] == calls[6:]  # the same random numbers in each run
    assert_unchanged(before, state_of(model))
    assert torch.equal(gradient, model[0].lora_up.weight.grad)


def test_keep_leaves_trained_float32_adapters():
    model = network()
    result = dtypetrace.retrain_lora(model, loss_of, make_optimizer=partial(AdamW, lr=1e-3), steps=4, keep=True)
    assert result.confirmed
    for name, parameter in model.named_parameters():
        assert parameter.dtype is (torch.float32 if "lora" in name else torch.float16)
    assert model[0].lora_up.weight.abs().mean() > 1e-3


def test_the_result_repeats():
    results = [dtypetrace.retrain_lora(network(), loss_of, make_optimizer=AdamW, steps=3, seed=5) for _ in range(2)]
    assert results[0].after == results[1].after
    assert dtypetrace.retrain_lora(network(), loss_of, make_optimizer=AdamW, steps=3, seed=6).after != results[0].after


def test_an_error_of_one_run_is_reported():
    def only_narrow(model):
        assert model[0].lora_up.weight.dtype is torch.float16, "float16 expected"
        return loss_of(model)

    result = dtypetrace.retrain_lora(network(), only_narrow, make_optimizer=AdamW, steps=3)
    assert not result.confirmed
    assert "float16 expected" in result.why and afters(result) == {"refused"}


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (dict(steps=1), ValueError, "take 2 or more"),
        (dict(model=nn.Linear(2, 2)), ValueError, "no adapters in Linear"),
        (dict(model=3), TypeError, "torch.nn.Module"),
        (dict(compute_loss=lambda a, b: 0), TypeError, "it needs 2 arguments"),
        (dict(compute_loss=lambda: 1.0), TypeError, "return the scalar loss"),
        (dict(make_optimizer=None), TypeError, "pass a function"),
        (dict(make_optimizer=lambda parameters: None), TypeError, "which has no param_groups"),
    ],
)
def test_bad_input_is_reported_in_one_line(arguments, error, says):
    chosen = {"model": network(), "compute_loss": loss_of, "make_optimizer": AdamW} | arguments
    with pytest.raises(error, match=re.escape(says)) as raised:
        dtypetrace.retrain_lora(chosen.pop("model"), chosen.pop("compute_loss"), **chosen)
    assert "\n" not in str(raised.value)


# ---------------------------------------------------------------- views


def test_the_views():
    result = dtypetrace.retrain_lora(network(), loss_of, make_optimizer=partial(AdamW, lr=1e-4), steps=4)
    table = result.to_dataframe()
    assert list(table["run"]) == ["before", "after"] * 2
    assert list(table["verdict"]) == ["state underflow", "healthy"] * 2
    assert table["adapter"].tolist() == ["0", "0", "2", "2"]
    assert (table["moved"][table["run"] == "after"] > 0.9).all()
    text = repr(result)
    assert (
        "the loss curve looks the same as with" in text.splitlines()[0]
        and "state underflow" in text
        and "exp_avg_sq" in text
    )
    page = result._repr_html_()
    assert len(page) < 60_000


def test_hostile_names_stay_text():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("<script>alert(1)</script>", Adapted(torch.float16))

        def forward(self, x):
            return next(self.children())(x)

    model = nn.Sequential(Odd())
    result = dtypetrace.retrain_lora(
        model, lambda m: m(torch.randn(4, 64).half()).float().pow(2).mean(), make_optimizer=AdamW, steps=2
    )
    assert "<script>" not in result._repr_html_()


# ---------------------------------------------------------------- real models


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("prodigyopt") is None or importlib.util.find_spec("diffusers") is None,
    reason="the page needs them",
)
def test_the_page_shows_what_is_printed(capsys):
    page = (Path(__file__).parents[2] / "docs" / "retrain.md").read_text("utf-8")
    program, printed = re.search(r"```python\n(.*?)```\s+```\n(.*?)```", page, re.S).groups()
    exec(compile(program, "page", "exec"), {})
    words = lambda text: re.sub(r"[-+]?\d[\d.e+-]*%?", "#", text).split()  # the last digits are the machine's
    assert words(capsys.readouterr().out) == words(printed)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("diffusers") is None, reason="needs diffusers")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_unet_of_diffusers(dtype):
    before = {"state underflow"} if dtype is torch.float16 else {"below resolution"}
    result = dtypetrace.retrain_lora(unet(dtype), unet_loss, make_optimizer=partial(AdamW, lr=1e-4), steps=3)
    assert len(result.adapters) == 32
    assert befores(result) == before and result.confirmed, result.why
    if dtype is torch.float16:
        result = dtypetrace.retrain_lora(
            unet(dtype), unet_loss, make_optimizer=made("prodigyopt", "Prodigy", lr=1.0), steps=3
        )
        assert befores(result) == {"state underflow"} and result.confirmed, result.why


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="needs transformers and peft")
@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_llama_with_peft(dtype, dora):
    result = dtypetrace.retrain_lora(
        llama(dtype, use_dora=dora), llama_loss, make_optimizer=partial(AdamW, lr=1e-4), steps=4
    )
    assert len(result.adapters) == 4
    assert befores(result) == ({"state underflow"} if dtype is torch.float16 else {"below resolution"})
    assert result.confirmed, result.why


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="needs bitsandbytes")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_base_of_four_bits(dtype):
    model = llama(dtype, four_bit=True)
    assert model.base_model.model.model.layers[0].self_attn.q_proj.base_layer.weight.dtype is torch.uint8
    result = dtypetrace.retrain_lora(model, llama_loss, make_optimizer=partial(AdamW, lr=1e-4), steps=4)
    expected = {torch.float16: "state underflow", torch.bfloat16: "below resolution", torch.float32: "healthy"}
    assert befores(result) == {expected[dtype]} and result.confirmed, result.why
