"""The callbacks in the real libraries: a run ends bit-equal with and without, mistakes are named, nothing stays installed."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import warm
from torch import nn

import dtypetrace
from dtypetrace import graph
from dtypetrace.errors import FoundError
from dtypetrace.integrations.watching import FirstSteps

pytestmark = pytest.mark.slow
ROWS = 8


class Net(nn.Module):
    """What a trainer trains: a loss from its own forward. ``mask`` makes the tensor that some mistakes are about."""

    def __init__(self, mask=None):
        super().__init__()
        self.inward, self.outward, self.mask = nn.Linear(8, 16), nn.Linear(16, 1), mask

    def forward(self, x, y):
        x = x.to(self.inward.weight.dtype)
        if self.mask is not None:
            x = x * self.mask(len(x))
        x = self.outward(torch.relu(nn.functional.dropout(self.inward(x), 0.1, self.training)))
        return {"loss": (x.float() - y).pow(2).mean()}


def float_mask(rows):
    return torch.ones(rows, 8)


def data():
    make = torch.Generator().manual_seed(0)
    return [{"x": torch.randn(8, generator=make), "y": torch.randn(1, generator=make)} for _ in range(ROWS * 6)]


def weights(model):
    return {name: p.detach().clone() for name, p in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def loss_scaler():
    return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)


def was_scaled(one, other, steps):
    """Both runs scaled their losses alike, in float16, and the watched one's report knows it."""
    assert one.state_dict() == other.state_dict() and one.get_scale() > 2.0**10
    assert {op.autocast for op in steps.trace.recording.ops} == {"", "cpu:float16"}
    assert graph.has_scaler(steps.trace.recording)
    assert not [f for f in (*steps.plan, *steps.trace.findings) if f.severity == "error"]
    assert steps.trace.recording.meta["steps"] == 2 and not steps.watching


# ---------------------------------------------------------------- transformers


def hf(folder, callback=None, model=None, *, add=False, scaler=None, **options):
    """Trains with the Trainer of transformers; returns the weights and the trainer."""
    from transformers import Trainer, TrainingArguments

    class Own(Trainer):
        def create_accelerator_and_postprocess(self):
            super().create_accelerator_and_postprocess()
            give_scaler(self.accelerator, scaler)

    torch.manual_seed(1)
    args = TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=ROWS, report_to=[], save_strategy="no", logging_steps=1,
        use_cpu=True, disable_tqdm=True, seed=3, **{"learning_rate": 1e-2, "max_steps": 5, **options},
    )  # fmt: skip
    callbacks = [callback] if callback is not None and not add else []
    trainer = Own(model if model is not None else Net(), args, train_dataset=data(), callbacks=callbacks)
    if add:
        trainer.add_callback(callback)
    trainer.train()
    return weights(trainer.model), trainer


@pytest.fixture
def hf_callback():
    pytest.importorskip("accelerate")
    module = pytest.importorskip("dtypetrace.integrations.transformers", reason="needs transformers")
    return module.DtypeTraceCallback


@pytest.mark.parametrize(("precision", "autocast"), [({}, ""), ({"bf16": True}, "cpu:bfloat16"), ({"fp16": True}, "")])
def test_the_trainer_of_transformers_ends_bit_equal(tmp_path, hf_callback, precision, autocast, capfd):
    plain, _ = hf(tmp_path / "plain", **precision)
    callback = hf_callback(first=2)
    watched, trainer = hf(tmp_path / "watched", callback, **precision)
    assert same(plain, watched)
    assert callback.trace.recording.meta["steps"] == 2 and not callback.trace.is_open
    assert {op.autocast for op in callback.trace.recording.ops} - {""} == {autocast} - {""}
    assert (tmp_path / "watched" / "dtypetrace.html").exists()
    assert dtypetrace.load(tmp_path / "watched" / "dtypetrace.trace").recording.meta["steps"] == 2
    assert any("dtypetrace/errors" in row for row in trainer.state.log_history)
    assert "no dtype problem found in 2 steps" in capfd.readouterr().err


def test_the_trainer_of_transformers_with_a_loss_scaler_ends_bit_equal(tmp_path, hf_callback):
    callback, one, other = hf_callback(first=2), loss_scaler(), loss_scaler()
    plain, _ = hf(tmp_path / "plain", fp16=True, scaler=one)
    watched, _ = hf(tmp_path / "watched", callback, fp16=True, scaler=other)
    assert same(plain, watched)
    was_scaled(one, other, callback.steps)


@pytest.mark.parametrize("add", [False, True])
def test_an_exception_inside_the_trainer_gets_the_birth(tmp_path, hf_callback, add):
    callback = hf_callback()
    with pytest.raises(RuntimeError) as raised:
        hf(tmp_path, callback, Net(float_mask).bfloat16(), add=add)
    (born,) = [note for note in raised.value.__notes__ if "is born here" in note]
    assert "test_trainers.py" in born
    assert callback.trace.findings[0].code == "DT101"
    assert not callback.trace.is_open and (tmp_path / "dtypetrace.html").exists()


def test_weights_that_do_not_move_are_named_before_and_after(tmp_path, hf_callback, capfd):
    model = Net().bfloat16()
    callback = hf_callback(first=3)
    hf(tmp_path, callback, model, learning_rate=1e-6, optim="sgd", lr_scheduler_type="constant")
    assert [f.code for f in callback.steps.plan if f.severity != "note"] == ["DT503"]
    assert "DT304" in {f.code for f in callback.trace.findings}
    assert "DT304" in capfd.readouterr().err


def test_a_run_is_ended_only_where_that_was_asked(tmp_path, hf_callback):
    with pytest.raises(FoundError, match="DT503"):
        hf(tmp_path, hf_callback(fail_on="warning"), Net().bfloat16(), learning_rate=1e-6, optim="sgd")


# ---------------------------------------------------------------- lightning


def lit(folder, callback=None, model=None, precision="32-true", limit=5, lr=1e-2, plugin=None):
    pl = pytest.importorskip("lightning.pytorch")

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model if model is not None else Net()

        def training_step(self, batch, index):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=lr)

    torch.manual_seed(1)
    module = Module()
    loader = torch.utils.data.DataLoader(data(), batch_size=ROWS, shuffle=True)
    logger = pl.loggers.CSVLogger(str(folder))
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_steps=limit, callbacks=[callback] if callback else [], logger=logger,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
        **({"plugins": [plugin]} if plugin is not None else {"precision": precision}),
    )  # fmt: skip
    trainer.fit(module, loader)
    return weights(module), trainer


@pytest.mark.parametrize("precision", ["32-true", "bf16-true", "16-mixed"])
def test_lightning_ends_bit_equal(tmp_path, precision):
    pytest.importorskip("lightning")
    from dtypetrace.integrations.lightning import DtypeTraceCallback

    callback = DtypeTraceCallback(first=2)
    plain, _ = lit(tmp_path / "plain", precision=precision)
    watched, trainer = lit(tmp_path / "watched", callback, precision=precision)
    assert same(plain, watched)
    assert callback.trace.recording.meta["steps"] == 2 and not callback.trace.is_open
    assert (Path(trainer.log_dir) / "dtypetrace.html").exists()
    assert "dtypetrace/errors" in (Path(trainer.log_dir) / "metrics.csv").read_text()


def test_lightning_with_a_loss_scaler_ends_bit_equal(tmp_path):
    """Float16 autocast and a real scaler on a CPU, which Lightning allows to a plugin that is made by hand."""
    plugins = pytest.importorskip("lightning.pytorch.plugins.precision")
    from dtypetrace.integrations.lightning import DtypeTraceCallback

    callback, one, other = DtypeTraceCallback(first=2), loss_scaler(), loss_scaler()
    plain, _ = lit(tmp_path / "a", plugin=plugins.MixedPrecision("16-mixed", "cpu", scaler=one))
    watched, _ = lit(tmp_path / "b", callback, plugin=plugins.MixedPrecision("16-mixed", "cpu", scaler=other))
    assert same(plain, watched)
    was_scaled(one, other, callback.steps)


COMMAND = """
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LightningCLI

class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.ones(32, 8), batch_size=8)

    def training_step(self, batch, index):
        return self.layer(batch.to(self.layer.weight.dtype)).float().pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)

LightningCLI(Net, save_config_callback=None)
"""


def test_the_callback_is_added_on_the_command_line_of_lightning(tmp_path):
    pytest.importorskip("lightning")
    pytest.importorskip("jsonargparse", reason="Lightning's command line needs jsonargparse[signatures]")
    (tmp_path / "cli.py").write_text(COMMAND)
    words = ["max_steps=4", "precision=bf16-true", "accelerator=cpu", "logger=false", "enable_checkpointing=false"]
    own = ["+=dtypetrace.integrations.lightning.DtypeTraceCallback", ".first=2"]
    own = [*(f"--trainer.{w}" for w in words), *(f"--trainer.callbacks{w}" for w in own)]
    ended = warm.run(["cli.py", "fit", *own], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "2 bfloat16 weights did not move in 2 SGD steps" in ended.stderr
    assert (tmp_path / "dtypetrace.html").exists()


def test_an_exception_inside_lightning_gets_the_birth(tmp_path):
    pytest.importorskip("lightning")
    from dtypetrace.integrations.lightning import DtypeTraceCallback

    callback = DtypeTraceCallback()
    with pytest.raises(RuntimeError) as raised:
        lit(tmp_path, callback, Net(lambda rows: torch.ones(rows, 8, dtype=torch.float64)), "bf16-true")
    assert any("is born here" in note and "test_trainers.py" in note for note in raised.value.__notes__)
    assert callback.trace.findings[0].severity == "error" and not callback.trace.is_open


# ---------------------------------------------------------------- accelerate


def give_scaler(accelerator, scaler):
    """Float16 autocast with a loss scaler, which an Accelerator leaves out on a CPU: all that follows is its own."""
    if scaler is not None:
        accelerator.scaler, accelerator.native_amp = scaler, True


def accelerated(mixed="no", watch=None, model=None, lr=1e-2, scaler=None):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    torch.manual_seed(1)
    accelerator = Accelerator(cpu=True, mixed_precision=mixed)
    give_scaler(accelerator, scaler)
    net = model if model is not None else Net()
    loader = torch.utils.data.DataLoader(data(), batch_size=ROWS)
    net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=lr), loader)

    def train():
        for batch in loader:
            accelerator.backward(net(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()

    if watch is None:
        train()
    else:
        with watch(accelerator, first=2) as steps:
            train()
        return weights(accelerator.unwrap_model(net)), steps
    return weights(accelerator.unwrap_model(net)), None


@pytest.mark.parametrize("mixed", ["no", "bf16"])
def test_accelerate_ends_bit_equal(mixed):
    pytest.importorskip("accelerate")
    from dtypetrace.integrations.accelerate import watch

    plain, _ = accelerated(mixed)
    watched, steps = accelerated(mixed, watch)
    assert same(plain, watched)
    assert steps.trace.recording.meta["steps"] == 2 and not steps.watching


def test_accelerate_with_a_loss_scaler_ends_bit_equal():
    pytest.importorskip("accelerate")
    from dtypetrace.integrations.accelerate import watch

    one, other = loss_scaler(), loss_scaler()
    plain, _ = accelerated("fp16", scaler=one)
    watched, steps = accelerated("fp16", watch, scaler=other)
    assert same(plain, watched)
    was_scaled(one, other, steps)


def test_an_exception_in_a_loop_of_accelerate_gets_the_birth():
    pytest.importorskip("accelerate")
    from dtypetrace.integrations.accelerate import watch

    with pytest.raises(RuntimeError) as raised:
        accelerated("no", watch, Net(float_mask).bfloat16())
    assert any("is born here" in note for note in raised.value.__notes__)


def test_nothing_prepared_is_one_line():
    accelerate = pytest.importorskip("accelerate")
    from dtypetrace.integrations.accelerate import watch

    with pytest.raises(ValueError, match="no model was prepared"), watch(accelerate.Accelerator(cpu=True)):
        pass


# ---------------------------------------------------------------- known mistakes


class Decomposed(Net):
    """Ends in an operator that has no kernel in half precision."""

    def forward(self, x, y):
        wide = super().forward(x, y)["loss"]
        return {"loss": wide + torch.linalg.svdvals(self.inward.weight[:, :4]).sum()}


class Narrowed(Net):
    """Computes in float16 under its own autocast, whatever its weights are in."""

    def forward(self, x, y):
        with torch.autocast("cpu", torch.float16):
            return super().forward(x, y)


def widen_gradients(model):
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: setattr(p.grad, "data", p.grad.data.float()))
    return model


SEEDS = {
    "a mask made in float32": (lambda: Net(float_mask).bfloat16(), 1e-2, {"DT101"}),
    "half adapters that do not move": (lambda: Net().bfloat16(), 1e-8, {"DT304"}),
    "an operator without a kernel": (lambda: Decomposed().half(), 1e-2, {"DT109"}),
    "a bfloat16 base under autocast in float16": (lambda: Narrowed().bfloat16(), 1e-2, {"DT401"}),
    "gradients of another dtype": (lambda: widen_gradients(Net().bfloat16()), 1e-2, {"DT306", "DT115"}),
}


def in_transformers(folder, model, lr, seen):
    callback = pytest.importorskip("dtypetrace.integrations.transformers").DtypeTraceCallback(first=3)
    seen.append(callback.steps)
    hf(folder, callback, model, max_steps=4, learning_rate=lr, lr_scheduler_type="constant")


def in_lightning(folder, model, lr, seen):
    callback = pytest.importorskip("dtypetrace.integrations.lightning").DtypeTraceCallback(first=3)
    seen.append(callback.steps)
    lit(folder, callback, model, limit=4, lr=lr)


def in_accelerate(folder, model, lr, seen):
    watch = pytest.importorskip("dtypetrace.integrations.accelerate").watch

    @contextmanager
    def kept(*args, **options):
        with watch(*args, **options) as steps:
            seen.append(steps)
            yield steps

    accelerated("no", kept, model, lr)


@pytest.mark.parametrize("trainer", [in_transformers, in_lightning, in_accelerate])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_known_mistake_inside_a_trainer_is_named(tmp_path, seed, trainer):
    """The five bugs that the project began with, each inside each trainer."""
    make, lr, codes = SEEDS[seed]
    seen = []
    try:
        trainer(tmp_path, make(), lr, seen)
    except RuntimeError:
        pass
    (steps,) = seen
    found = {f.code for f in (*steps.plan, *steps.trace.findings) if f.severity != "note"}
    assert found & codes, found
    assert not steps.trace.is_open


# ---------------------------------------------------------------- what they share


def test_an_internal_failure_leaves_the_run_alone(capfd):
    steps = FirstSteps()
    steps.begin("no module")
    steps.step_done()
    steps.end()
    assert "internal error; the run goes on" in capfd.readouterr().err and not steps.watching


@pytest.mark.parametrize("wrong", [{"fail_on": "fatal"}, {"first": 0}])
def test_wrong_settings_are_refused_at_once(wrong):
    with pytest.raises(ValueError):
        FirstSteps(**wrong)


def test_only_rank_zero_prints_and_each_rank_writes_its_trace(tmp_path, capfd):
    model = nn.Linear(2, 2)
    steps = FirstSteps()
    steps.begin(model, rank=3, folder=tmp_path)
    model(torch.ones(1, 2))
    steps.end()
    assert capfd.readouterr().err == ""
    assert [p.name for p in tmp_path.iterdir()] == ["dtypetrace.rank3.trace"]
    assert json.loads((tmp_path / "dtypetrace.rank3.trace").read_text())["dtypetrace"] == "trace"


def test_the_last_rank_says_what_the_ranks_disagree_about(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    jobs = []
    for rank in (1, 0):  # both have begun before the first one ends
        monkeypatch.setenv("RANK", str(rank))
        jobs.append(FirstSteps())
        model = nn.Linear(2, 2).to(torch.bfloat16 if rank else torch.float32)
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
        jobs[-1].begin(model, rank=rank)
        other = jobs[0]._job if rank else None
        if other is not None:
            (other.folder / "rank0.pid").write_text(str(os.getppid()))  # a process that runs
        model(torch.ones(1, 2, dtype=model.weight.dtype)).sum().backward()
        optimizer.step()
        jobs[-1].end()
    shown = capfd.readouterr().err
    assert "is float32 on rank 0 and bfloat16 on rank 1" in shown and "SGD's momentum_buffer" in shown
    assert shown.count("optimizer state") == 1  # rank 0 prints its receipt
    assert not list(tmp_path.glob("dtypetrace-*"))


def test_the_plan_knows_the_autocast_that_there_is():
    """On a CPU, accelerate takes ``fp16`` and sets neither autocast nor a scaler."""
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState

    from dtypetrace.integrations.accelerate import autocast_of

    found = []
    for mixed in ("no", "bf16", "fp16"):
        AcceleratorState._reset_state(reset_partial_state=True)
        found.append(autocast_of(accelerate.Accelerator(cpu=True, mixed_precision=mixed)))
    AcceleratorState._reset_state(reset_partial_state=True)
    assert found == [None, torch.bfloat16, None]


# ---------------------------------------------------------------- one step in so many


def test_a_trainer_stays_watched_one_step_in_so_many(tmp_path, hf_callback, capfd):
    plain, _ = hf(tmp_path / "plain", max_steps=9)
    callback = hf_callback(first=2, every=4)
    watched, _ = hf(tmp_path / "watched", callback, max_steps=9)
    assert same(plain, watched)
    assert callback.trace.recording.meta["steps"] == 4 and not callback.trace.is_open
    shown = capfd.readouterr().err
    assert "no dtype problem found in 2 steps" in shown and "no dtype problem found in 4 steps" in shown
    assert dtypetrace.load(tmp_path / "watched" / "dtypetrace.trace").recording.meta["steps"] == 4


def test_lightning_stays_watched_one_step_in_so_many(tmp_path):
    module = pytest.importorskip("dtypetrace.integrations.lightning", reason="needs lightning")
    plain, _ = lit(tmp_path / "plain", limit=9)
    callback = module.DtypeTraceCallback(first=2, every=4)
    watched, _ = lit(tmp_path / "watched", callback, limit=9)
    assert same(plain, watched) and callback.trace.recording.meta["steps"] == 4


def test_accelerate_stays_watched_one_step_in_so_many(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    from dtypetrace.integrations.accelerate import watch

    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(Net(), torch.optim.SGD(Net().parameters(), lr=0.1))
    with watch(accelerator, 2, folder=tmp_path, every=4) as steps:
        for _ in range(9):
            loss = model(torch.ones(2, 8), torch.ones(2, 1))["loss"]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    assert steps.trace.recording.meta["steps"] == 4
    assert not model._forward_pre_hooks


def test_a_collision_in_an_unwatched_step_of_a_trainer(tmp_path, hf_callback):
    class Breaks(Net):
        calls = 0

        def forward(self, x, y):
            self.calls += 1
            return super().forward(x, y) if self.calls < 6 else self.inward(x.double())

    callback = hf_callback(first=2, every=4)
    with pytest.raises(RuntimeError):
        hf(tmp_path, callback, Breaks(), max_steps=9)
    (finding,) = (f for f in callback.trace.findings if f.code == "DT101")
    assert any("was not watched" in note for note in finding.notes)
