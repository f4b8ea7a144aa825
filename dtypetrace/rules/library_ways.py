"""What a library itself offers for a collision that its own functions led to, in words, beside the edit.

A way is named only where the recording shows the library's function: on the stack where the dtype was born or where it
was refused, or somewhere in the run. Nothing is concluded from what is merely installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..records import Fix, Frame
from ..tables.dtypes import HALF
from . import autocast_off
from .case import Case


@dataclass(frozen=True, slots=True)
class Way:
    """What to use, and where the library's function must have been seen.

    ``functions``: names of which a frame must have one; empty for any function. ``file``: a part of its file's name.
    """

    library: str
    words: str
    functions: frozenset[str] = frozenset()
    file: str = ""
    seen: Callable[[Case], Iterator[Frame]] = lambda case: _born(case)
    applies: Callable[[Case], bool] = lambda case: True


def _born(case: Case) -> Iterator[Frame]:
    yield from case.origin.place.stack
    for step in case.flow:
        yield from step.place.stack


def _refused(case: Case) -> Iterator[Frame]:
    yield from case.site.stack


def _anywhere(case: Case) -> Iterator[Frame]:
    for place in case.recording.places:
        yield from place.stack


def _scaler_refused(case: Case) -> bool:
    return case.refused.code == "DT116"


def _half_meets_wide(case: Case) -> bool:
    dtypes = {w.dtype for w in case.refused.witnesses}
    return bool(dtypes & HALF) and "float32" in dtypes


def _half_weights(case: Case) -> bool:
    """Whether the weights are in half: a way to have them in float32 changes nothing where they are."""
    return any(w.holder == "parameter" and w.dtype in HALF for w in case.refused.witnesses)


WAYS: tuple[Way, ...] = (
    Way(
        "peft",
        "peft's autocast_adapter_dtype decides it: True makes adapters float32, False leaves them in the base's dtype",
        frozenset({"get_peft_model", "inject_adapter_in_model", "cast_adapter_dtype", "add_adapter"}),
    ),
    Way(
        "peft",
        "prepare_model_for_kbit_training() makes it float32: run the forward under autocast, or do not call this "
        "function",
        frozenset({"prepare_model_for_kbit_training"}),
    ),
    Way(
        "diffusers",
        "diffusers.training_utils.cast_training_params(model, dtype=torch.float32) does this for all that is trained",
        seen=_anywhere,
        applies=_scaler_refused,
    ),
    Way(
        "diffusers",
        "compute the VAE in float32: call pipe.upcast_vae(), or vae.to(torch.float32) if you have no pipeline; in both "
        "cases, give it float32 latents",
        file="autoencoder",
        seen=_refused,
        applies=_half_weights,
    ),
    Way(
        "transformers",
        "transformers keeps the modules named in a model's _keep_in_fp32_modules in float32 where it loads in float16",
        frozenset({"from_pretrained"}),
        applies=_half_meets_wide,
    ),
    Way(
        "lightning",
        'Trainer(precision="bf16-mixed") lets Lightning put autocast around each step',
        seen=_refused,
        applies=_half_meets_wide,
    ),
    Way(
        "accelerate",
        "run this call under torch.autocast too, or call accelerator.unwrap_model(model, keep_fp32_wrapper=False): "
        "Accelerator.prepare() makes what the model returns float32",
        frozenset({"convert_to_fp32", "_convert_to_fp32"}),
        applies=_half_meets_wide,
    ),
    Way(
        "accelerate",
        'Accelerator(mixed_precision="bf16") puts autocast around the forward of a prepared model',
        seen=_refused,
        applies=_half_meets_wide,
    ),
)


CUSTOM = (
    'decorate this function\'s forward with torch.amp.custom_fwd(device_type="{device}") and its backward with '
    'torch.amp.custom_bwd(device_type="{device}"): autocast was on in forward and is off in backward'
)


def named(case: Case, fix: Fix) -> Fix:
    """The fix, with the ways of the libraries whose functions the recording shows among its alternatives."""
    ways = tuple(way.words for way in WAYS if way.applies(case) and any(_is(way, frame) for frame in way.seen(case)))
    if (forward := autocast_off.ran_in_forward(case.recording, case.refused)) is not None:
        ways = (CUSTOM.format(device=forward.autocast.partition(":")[0]), *ways)
    new = tuple(words for words in ways if words not in fix.alternatives)
    return replace(fix, alternatives=(*new, *fix.alternatives)) if new else fix


def _is(way: Way, frame: Frame) -> bool:
    """Whether a frame runs a function of the way's library."""
    if frame.user or f"/{way.library}/" not in frame.file.replace("\\", "/"):
        return False
    function = frame.function.rpartition(".")[2]
    return (not way.functions or function in way.functions) and way.file in frame.file.rpartition("/")[2]
