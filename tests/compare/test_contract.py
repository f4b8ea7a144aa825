"""Contracts: the dtypes of a run as a small text, and what another run changed, with the line that changed it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from pathlib import Path

import pytest
import warm
from recordings import RecordingBuilder

from dtypetrace import saved
from dtypetrace.compare import contract
from dtypetrace.compare.differences import compare
from dtypetrace.records import Parameter, Plan, Transfer
from dtypetrace.records.measurements import State, Update
from dtypetrace.render import contracts
from dtypetrace.results import conclude

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str, text: str) -> None:
    file = GOLDEN / name
    if os.environ.get("DTYPETRACE_GOLDEN"):
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")


def run(*norms: str, model: str = "net", scaler: bool = False, above: int = 0, last: str = ""):
    """A layer for each dtype of norm weights, in float32 at ``last``; what they make is read by a head."""
    b = RecordingBuilder()
    for _ in range(above):
        b.line()
    x = b.made("bfloat16", text="x = «torch.randn(4, 4, dtype=torch.bfloat16)»")
    updates = []
    for n, norm in enumerate(norms):
        own = b.made(norm, "cast", explicit=True, text=f"net.layers[{n}].norm.to(«torch.{norm}»)").as_parameter(
            f"{model}.layers.{n}.norm.weight"
        )
        b.parameters.append(Parameter(own.name, norm, 16, own.event))
        updates.append(update(own.name, norm, own.event))
        made = b.ran("mul", x, own, out=norm, module=f"{model}.layers.{n}.norm", text="y = «x * self.weight»")
        made = b.ran(
            "to",
            made,
            out="bfloat16",
            aten="_to_copy.default",
            module=f"{model}.layers.{n}.norm",
            text="y = «y.to(x.dtype)»",
        )
        x = b.ran(
            "linear", made, module=f"{model}.layers.{n}.mlp", autocast="cpu:bfloat16", text="return «self.mlp(y)»"
        )
    b.ran("linear", x, out=last or "bfloat16", module=f"{model}.head", text="return «self.head(x)»")
    recording = dataclasses.replace(
        b.recording, modules=tuple(dict.fromkeys(o.module for o in b.ops)), updates=tuple(updates)
    )
    return dataclasses.replace(recording, plans=(Plan(0, "Net", scaler=scaler),))


def update(name: str, dtype: str, event: int) -> Update:
    state = (State("exp_avg", dtype, 0.0), State("exp_avg_sq", "float32", 0.0))
    return Update(name, dtype, (4, 4), event, 0, "AdamW", 3, 1e-3, 1e-8, dtype, event, 0, 0, 0, 1.0, 0.0, 9, 9, True, 0, 1.0, 0.1, state=state)  # fmt: skip


def breaches(before, after) -> tuple[contract.Breach, ...]:
    return contract.check(contract.parse(contract.text(contract.facts(before))), contract.facts(after))


# ---------------------------------------------------------------- the text


def test_the_text_is_golden():
    golden("net.contract", contract.text(contract.facts(run("float32", "float32", "bfloat16"))))


def test_layers_that_agree_are_one_section_and_a_page_is_enough():
    written = contract.text(contract.facts(run(*["float32"] * 32)))
    assert "[layers.*.norm]" in written and "[layers.31" not in written
    assert len(written.splitlines()) == len(contract.text(contract.facts(run("float32", "float32"))).splitlines())


def test_a_layer_that_differs_has_its_own_section():
    sections = contract.parse(contract.text(contract.facts(run("float32", "bfloat16", "float32"))))
    assert sections["layers.*.norm"]["parameters"] == "weight float32"
    assert sections["layers.1.norm"]["parameters"] == "weight bfloat16"


def test_numbered_modules_in_numbered_ones_are_a_section_each():
    """As in a Sequential of Sequentials: ``*.0`` and ``*.1`` differ, and each is one section."""
    names = {f"{n}.{part}": ("float32", "bfloat16")[part] for n in range(4) for part in range(2)}
    found = {name: contract.Facts({"computes": dtype}) for name, dtype in {"(run)": "off", **names}.items()}
    sections = contract.parse(contract.text(found))
    assert {name: s["computes"] for name, s in sections.items() if name != "(run)"} == {
        "*.0": "float32",
        "*.1": "bfloat16",
    }
    assert contract.check(sections, found) == ()


def test_groups_that_would_share_a_pattern_are_kept_apart():
    """The larger group has the pattern; the modules of the other have their names."""
    found = {f"layers.{n}": contract.Facts({"computes": "float32" if n < 3 else "bfloat16"}) for n in range(5)}
    sections = contract.parse(contract.text({"(run)": contract.Facts({"computes": "off"}), **found}))
    assert set(sections) == {"(run)", "layers.*", "layers.3", "layers.4"}
    assert contract.check(sections, {"(run)": contract.Facts({"computes": "off"}), **found}) == ()


def test_the_text_depends_on_dtypes_alone():
    one = contract.text(contract.facts(run("float32", "float32")))
    assert one == contract.text(contract.facts(run("float32", "float32", model="transformer", above=9)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no section"),
        ("[a]\nx: 1", "no section"),
        ("x: 1\n", "line 1 is neither"),
        ("[(run)]\nloss scaler: off\nwhat\n", "line 3 is neither"),
        ("{}", "line 1 is neither"),
    ],
)
def test_what_is_no_contract_is_one_line(text, says):
    with pytest.raises(contract.ContractError, match=says) as raised:
        contract.parse(text)
    assert "\n" not in str(raised.value)


# ---------------------------------------------------------------- the check


def test_the_same_run_fulfils_its_contract():
    assert breaches(run("float32", "bfloat16"), run("float32", "bfloat16", above=3, model="other")) == ()


def test_short_names_of_dtypes_may_be_written():
    written = contract.text(contract.facts(run("float32", "bfloat16", "float32")))
    short = written.replace("bfloat16", "bf16").replace("float32", "torch.float")
    assert short != written and contract.parse(short) == contract.parse(written)


def test_a_changed_norm_is_named_with_its_line():
    found = breaches(run(*["float32"] * 3), run("bfloat16", "bfloat16", "bfloat16"))
    norm = {b.key: b for b in found if b.modules == ("layers.*.norm",)}
    assert (norm["computes"].wanted, norm["computes"].found) == ("float32", "bfloat16")
    assert (norm["parameters"].wanted, norm["parameters"].found) == ("weight float32", "weight bfloat16")
    assert norm["parameters"].cause.place.line == norm["computes"].cause.place.line == 2
    assert set(norm) == {"parameters", "computes", "gradients", "state"}


def test_one_changed_layer_of_many_is_named_alone():
    found = breaches(run(*["float32"] * 4), run("float32", "float32", "bfloat16", "float32"))
    assert {b.modules for b in found} == {("(run)",), ("layers.2.norm",)}


def test_an_op_that_gives_another_dtype_is_the_line():
    found = breaches(run("float32"), run("float32", last="float32"))
    (head,) = [b for b in found if b.modules == ("head",)]
    assert (head.key, head.wanted, head.found, head.cause.op) == ("computes", "bfloat16", "float32", "linear")


def test_a_dtype_that_is_no_longer_computed_in_is_shown_with_the_op():
    wanted = {"(run)": {"loss scaler": "off", "optimizer": "AdamW"}, **_sections(run("float32"))}
    wanted["head"] = {**wanted["head"], "computes": "bfloat16, float32"}
    (found,) = contract.check(wanted, contract.facts(run("float32")))
    assert (found.key, found.cause.op, found.cause.place.line) == ("computes", "linear", 6)


def calls(*autocasts: str):
    """Two layers called in ``train``, each under an autocast or under none."""
    b = RecordingBuilder()
    x, other = b.made("float32", text="x = «torch.randn(4, 4)»"), b.made("float32", text="y = «torch.randn(4, 4)»")
    for layer, (source, autocast) in enumerate(zip((x, other), autocasts)):
        call = b.line(f"out = «net.layer{layer}(x)»")
        for n, op in enumerate(("relu", "exp")):
            at = b.line(f"return «{op}(x)»", below=call)
            b.ran(op, source, out="float32", module=f"net.layer{layer}", autocast=autocast, at=at)
    return dataclasses.replace(b.recording, modules=("net", "net.layer0", "net.layer1"))


def test_what_autocast_computes_is_not_traced_to_the_inputs():
    """A linear under autocast casts its operands itself, whatever dtype comes in."""

    def second_layer(autocast: str):
        b = RecordingBuilder()
        x = b.made("float32", text="x = «torch.randn(4, 4)»")
        half = autocast.partition(":")[2]
        for layer in range(2):
            at = b.line(f"return «self.layer{layer}(x)»")
            x = b.ran("linear", x, out=half, module=f"net.layer{layer}", autocast=autocast, at=at)
        b.ran("exp", x, out=half)
        return dataclasses.replace(b.recording, modules=("net", "net.layer0", "net.layer1"))

    found = breaches(second_layer("cpu:bfloat16"), second_layer("cpu:float16"))
    lines = {f.key: f.cause.place.line for f in found if f.modules == ("layer1",)}
    assert lines["computes"] == lines["outputs"] == lines["autocast"]


def test_autocast_that_is_gone_is_named_with_a_line_that_ran_without():
    before = calls("cpu:bfloat16", "cpu:bfloat16")
    written = contract.text(contract.facts(before))
    (found,) = contract.check(contract.parse(written), contract.facts(calls("cpu:bfloat16", "")))
    assert (found.modules, found.key, found.wanted, found.found) == (("layer1",), "autocast", "cpu:bfloat16", "")
    assert (found.cause.op, found.cause.place.line) == ("relu", 7)
    shown = contracts.text([found], "dtypes.contract")
    assert "\n      relu at /p/train.py:7:8 ran without autocast\n" in shown
    (back,) = breaches(calls("cpu:bfloat16", ""), before)
    assert (back.wanted, back.found, back.cause.place.line) == ("", "cpu:bfloat16", 7)
    assert "without autocast" not in contracts.text([back], "dtypes.contract")


def test_an_optimizer_state_that_follows_its_parameters_has_their_line():
    (state,) = [b for b in breaches(run("float32"), run("bfloat16")) if b.key == "state"]
    assert state.cause.place.line == 2


def _sections(recording):
    return contract.parse(contract.text(contract.facts(recording)))


def test_new_modules_and_removed_ones_are_distinguished():
    found = breaches(run("float32"), run("float32", "float32"))
    assert {b.modules for b in found if not b.wanted} == {("layers.1.norm",), ("layers.1.mlp",)}
    found = breaches(run("float32", "bfloat16"), run("float32"))
    assert {b.modules for b in found if not b.found} >= {("layers.1.norm",)}


def test_a_contract_of_few_layers_holds_for_more_of_the_same():
    assert breaches(run("float32", "float32"), run(*["float32"] * 5)) == ()


def test_settings_of_the_run_are_part_of_it():
    (found,) = breaches(run("float32"), run("float32", scaler=True))
    assert (found.modules, found.key, found.wanted, found.found) == (("(run)",), "loss scaler", "off", "on")


def test_a_loss_scaler_is_known_by_what_it_runs():
    """A program passes its scaler to nobody; the op that checks its gradients shows it."""
    b = RecordingBuilder()
    gradient = b.made("float32")
    b.ran("unscale_", gradient, aten="_amp_foreach_non_finite_check_and_unscale_.default", text="«scaler.step(o)»")
    (found,) = breaches(RecordingBuilder().recording, b.recording)
    assert (found.wanted, found.found, found.cause.place.line) == ("off", "on", 2)
    assert compare(RecordingBuilder().recording, b.recording).facts == (found,)


@pytest.mark.parametrize("earlier", ["net1.contract", "net2.contract"])
def test_a_file_of_an_earlier_format_is_compared_in_what_it_has(earlier):
    """The first one knows nothing of the head, both nothing of the other parts of the receipt."""
    written = contract.parse((GOLDEN / earlier).read_text("utf-8"))
    assert contract.check(written, contract.facts(run("float32", "float32", "bfloat16"))) == ()
    found = contract.check(written, contract.facts(run("float32", "float32", "float32", scaler=True)))
    assert {(b.modules[0], b.key) for b in found} == {
        ("(run)", "loss scaler"),
        *(("layers.2.norm", key) for key in ("parameters", "computes", "gradients", "state")),
    }


def test_diff_and_contract_say_the_same_of_the_receipt():
    pair = run("float32"), run("bfloat16", scaler=True, last="float32")
    of_run = [b for b in breaches(*pair) if b.modules == ("(run)",)]
    assert {"loss scaler", "parameters", "gradients"} == {b.key for b in of_run}
    assert [b for b in compare(*pair).facts if b.modules == ("(run)",)] == of_run


def test_a_checkpoint_is_a_fact_of_the_run():
    written = contract.text(contract.facts(run("float32")))
    saved_too = dataclasses.replace(
        run("float32", scaler=True),
        transfers=(Transfer("written", "model", "float16", "float16", 1, 16, -1, ("head.weight",)),),
    )
    again = contract.check(contract.parse(written), contract.facts(saved_too))
    assert ("checkpoint written model", "", "float16") in [(b.key, b.wanted, b.found) for b in again]
    assert set(again) == set(compare(run("float32"), saved_too).facts)


def test_the_shown_difference_is_golden():
    golden(
        "contract.txt",
        contracts.text(breaches(run(*["float32"] * 3), run(*["bfloat16"] * 3, above=2)), "dtypes.contract") + "\n",
    )


# ---------------------------------------------------------------- the command


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(["-m", "dtypetrace", "contract", *words], folder)


def test_traces_are_written_and_checked(tmp_path):
    for name, norm in (("a", "float32"), ("b", "bfloat16")):
        saved.save(tmp_path / f"{name}.trace", conclude(run(norm, norm)))
    assert command(tmp_path, "write", "--trace", "a.trace").stdout == "dtypetrace contract: wrote dtypes.contract\n"
    same, other = (command(tmp_path, "check", "--trace", f"{name}.trace") for name in "ab")
    assert (same.returncode, same.stdout) == (0, "dtypetrace contract: the run matches dtypes.contract\n")
    assert other.returncode == 1 and "  - parameters: weight float32\n  + parameters: weight bfloat16\n" in other.stdout


def test_wrong_use_is_one_line(tmp_path):
    for words, says in (
        (["check", "step.py"], "dtypes.contract cannot be read"),
        (["write"], "give either a program or --trace"),
        (["write", "--trace", "no.trace"], "no.trace cannot be read"),
    ):
        ended = command(tmp_path, *words)
        assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and says in ended.stderr


@pytest.mark.slow
def test_a_program_is_run_and_one_that_fails_writes_nothing(tmp_path):
    (tmp_path / "step.py").write_text(
        "import sys, torch\ntorch.nn.Linear(2, 2)(torch.ones(1, 2))\nsys.exit(int(sys.argv[1]))\n"
    )
    ended = command(tmp_path, "write", "step.py", "3")
    assert ended.returncode == 2 and "step.py ended with status 3" in ended.stderr
    assert not (tmp_path / "dtypes.contract").exists()
    assert command(tmp_path, "write", "step.py", "0").returncode == 0
    assert command(tmp_path, "check", "step.py", "0").returncode == 0
