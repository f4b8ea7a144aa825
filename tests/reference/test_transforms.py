"""Tensors that cannot be read: those of torch.func's levels, and sizes that are symbols."""

import json

import programs
import pytest
import torch

TRANSFORMS = {
    "jacfwd": "torch.func.jacfwd(lambda x: w @ x)(x)",
    "hessian": "torch.func.hessian(lambda x: (w @ x).tanh().sum())(x)",
    "vmap of jvp": "torch.func.vmap(lambda t: torch.func.jvp(lambda x: (w @ x).sin(), (x,), (t,))[1])(torch.eye(4))",
    "forward mode in jacrev": "torch.func.jacfwd(torch.func.jacrev(lambda x: (w @ x).square().sum()))(x)",
}


@pytest.mark.parametrize("text", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_reference_leaves_out_what_a_transform_wraps(tmp_path, text):
    before = "torch.manual_seed(0); w, x = torch.randn(4, 4), torch.randn(4)"
    program = programs.run(tmp_path, f"found = {text}", before=before, reference=True, numerics=True)
    torch.manual_seed(0)
    w, x = torch.randn(4, 4), torch.randn(4)
    assert program.error is None and torch.equal(program.names["found"], eval(text, {"torch": torch, "w": w, "x": x}))


def test_a_symbolic_size_is_minus_one_in_json_and_in_a_saved_trace(tmp_path):
    text = """
    n = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(5, 4)], layout=torch.jagged)
    nn.Linear(4, 4).half()(n)
    """
    program = programs.run(tmp_path, text)
    program.trace.to_json(tmp_path / "o.json")
    program.trace.save(tmp_path / "o.trace")
    shapes = [o["shape"] for o in json.loads((tmp_path / "o.json").read_text())["findings"][0]["operands"]]
    assert [2, -1, 4] in shapes and (tmp_path / "o.trace").stat().st_size
