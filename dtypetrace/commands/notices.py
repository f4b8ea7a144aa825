"""Messages that people paste but that are not refusals of torch's: libraries' warnings, NaNs, two devices.

Each has the code of a page that helps, if there is one, and its meaning in two or three sentences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Notice:
    """A message by its wording, the code of its page (empty: none), its meaning and what to do."""

    pattern: re.Pattern[str]
    code: str
    meaning: str


def _notice(pattern: str, code: str, meaning: str) -> Notice:
    return Notice(re.compile(pattern, re.IGNORECASE | re.DOTALL), code, meaning)


_CPU_TENSOR = r"torch\.(?:Half|Float|Double|BFloat16|Long|Int|Short|Char|Byte|Bool)Tensor"
_DEVICE_TENSOR = _CPU_TENSOR.replace(r"torch\.", r"torch\.(?:cuda|mps|xpu|npu)\.", 1)

NOTICES = (
    _notice(
        rf"\b(?:{_DEVICE_TENSOR}).*\band\b.*\b(?:{_CPU_TENSOR}).*should be the same"
        rf"|\b(?:{_CPU_TENSOR}).*\band\b.*\b(?:{_DEVICE_TENSOR}).*should be the same",
        "",
        "This message is about devices: one tensor is on an accelerator (torch.cuda...), the other one is on the CPU. "
        "Move the model and its input to the same device. If their dtypes differ as well, dtypetrace run script.py "
        "says so after that.",
    ),
    _notice(
        r"tensor with all NaNs was produced in (?:the )?(?:VAE|Unet)",
        "DT301",
        "Values outgrew float16 inside the network and became infinite, then NaN. Run that part in float32 (in the "
        "Stable Diffusion web UI: --no-half, --no-half-vae) or in bfloat16, or use weights that were adapted to "
        "float16. Which op was the first: dtypetrace run script.py",
    ),
    _notice(
        r"MatMul8bitLt: inputs will be cast from \S+ to float16",
        "",
        "This is a warning of bitsandbytes, not an error: its int8 matmul takes float16 inputs, so inputs in another "
        "dtype are cast at each call. Values above 65504 become infinite there. To avoid the casts, load the model "
        "with torch_dtype=torch.float16.",
    ),
    _notice(
        r"Input type into Linear4bit is torch\.\w+, but bnb_4bit_compute_dtype=torch\.\w+",
        "",
        "This is a warning of bitsandbytes, not an error: 4-bit layers compute in bnb_4bit_compute_dtype, and their "
        "input has another dtype, so that each call casts. Set bnb_4bit_compute_dtype in BitsAndBytesConfig to the "
        "dtype of the input.",
    ),
    _notice(
        r"Recomputed values for the following tensors have different metadata",
        "",
        "Activation checkpointing ran the forward again during the backward pass, and a tensor had another shape, "
        "dtype or device than the first time. Where the dtypes in the message differ, autocast or a default dtype "
        "was on in only one of the two runs: call backward() outside autocast, and enter autocast inside the "
        "checkpointed function. Which op differs: dtypetrace run script.py",
    ),
)


def notice_for(text: str) -> Notice | None:
    """The notice whose wording a text contains, if any."""
    return next((notice for notice in NOTICES if notice.pattern.search(text)), None)
