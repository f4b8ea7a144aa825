"""The five bugs that the project exists for: the cause is named, and so is the change that mends it."""

from __future__ import annotations

import sys
from pathlib import Path

import programs
import pytest

sys.path.insert(0, str(Path(__file__).parent / "cases"))
import harness

pytestmark = pytest.mark.slow

SEEDS = {
    "one mask in float32, three errors later": ("seed_latent_mask_cat", "DT101", "float16"),
    "a blur kernel that nobody cast": ("seed_erode_kernel", "DT102", "float16"),
    "the scheduler's alphas": ("seed_vae_alphas", "DT102", "float16"),
    "adapters in float16 under Prodigy": ("seed_lora_prodigy", "DT304", "in float32"),
    "adapters in float16 under AdamW": ("seed_lora_adamw_underflow", "DT303", "in float32"),
    "adapters in float16 under SGD": ("seed_lora_sgd", "DT304", "in float32"),
    "a fallback region of another dtype": ("seed_fallback_region", "DT101", "float16"),
    "an operation without a half kernel": ("seed_svd_half", "DT109", "float32"),
    "a scaler on bfloat16 adapters": ("seed_scaler_bf16_lora", "DT501", "turn the loss scaler off"),
    "a scaler on float16 adapters": ("seed_unscale_fp16", "DT116", "in float32"),
    "gradients cast through .data": ("seed_grad_data_lerp", "DT115", "bfloat16"),
}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cause_and_the_remedy_are_named(seed, tmp_path):
    name, code, change = SEEDS[seed]
    case = harness.load(harness.HERE / f"case_{name}.py")
    if case.missing:
        pytest.skip(f"needs {', '.join(case.missing)}")
    program = programs.run(tmp_path, case.text.replace('if __name__ == "__main__":', "if True:"), numerics=True)
    found = next(f for f in program.findings if f.code == code)
    assert found.severity in ("error", "warning")
    if case.born:
        lines = [frame.line for frame in found.culprit.origin.place.stack if frame.file == program.file]
        assert lines and lines[0] in case.born
    assert change in " ".join((found.fix.why, *(edit.after for edit in found.fix.edits), *found.fix.alternatives))
