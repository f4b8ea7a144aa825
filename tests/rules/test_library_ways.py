"""A library's own remedy is named where the recording shows the library's function, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from recordings import RecordingBuilder

from dtypetrace import rules
from dtypetrace.records import Frame, Parameter, Place, Recording


def refused(
    library: str,
    function: str,
    *,
    at: str = "born",
    half: str = "float16",
    code: str = "DT101",
    weights: str = "float32",
) -> Recording:
    """A value meets weights, one of them in half; a frame of the library stands where it was born, or where it is refused."""
    b = RecordingBuilder()
    given, held = ("float32", half) if weights == half else (half, "float32")
    x = b.made(given, "cast", explicit=True, text="x = «make()»")
    weight = b.made(held, "parameter").as_parameter("weight", trained=code == "DT116")
    model = tuple(Parameter(f"{n}.weight", held, 99, weight.event) for n in range(3))
    b.refused("linear", x, weight, code=code, model=model, text="net(«x»)")
    b.line("«other()»")
    recording = b.recording
    number = {"born": b.events[x.event].place, "refused": b.refusals[0].place, "elsewhere": len(b.places) - 1}[at]
    inner = Frame(f"/lib/{library}/models/autoencoder_kl.py", 9, function, False, 1, 9, 5)
    places = list(recording.places)
    places[number] = Place((inner, *places[number].stack))
    return replace(recording, places=tuple(places))


def ways(recording: Recording) -> str:
    (finding,) = rules.find(recording)
    return " ".join(finding.fix.alternatives)


@pytest.mark.parametrize(
    ("library", "function", "at", "word"),
    [
        ("peft", "get_peft_model", "born", "autocast_adapter_dtype"),
        ("peft", "prepare_model_for_kbit_training", "born", "prepare_model_for_kbit_training"),
        ("diffusers", "AutoencoderKL.decode", "refused", "upcast_vae"),
        ("transformers", "from_pretrained", "born", "_keep_in_fp32_modules"),
        ("lightning", "training_step", "refused", "bf16-mixed"),
        ("accelerate", "forward", "refused", "mixed_precision"),
        ("accelerate", "convert_to_fp32.<locals>._convert_to_fp32", "born", "keep_fp32_wrapper=False"),
    ],
)
def test_the_function_that_the_library_has_for_it_is_named(library, function, at, word):
    weights = "float16" if word == "upcast_vae" else "float32"
    assert word in ways(refused(library, function, at=at, weights=weights))
    assert word not in ways(refused("another", function, at=at, weights=weights))
    assert word not in ways(refused(library, function, at="elsewhere", weights=weights))


def test_a_vae_that_is_in_float32_is_not_to_be_computed_in_float32():
    assert "upcast_vae" not in ways(refused("diffusers", "AutoencoderKL.decode", at="refused"))


def test_a_scaler_that_refuses_half_weights_of_a_library_s_model():
    with_it = ways(refused("diffusers", "forward", at="elsewhere", code="DT116"))
    assert "cast_training_params" in with_it
    assert "cast_training_params" not in ways(refused("diffusers", "forward", at="elsewhere"))
