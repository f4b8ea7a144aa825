"""What gives an attribute of the program's own objects its value. Needs no torch."""

from __future__ import annotations

import ast

from dtypetrace.records.text import ProgramText
from dtypetrace.source import attributes

PROGRAM = """
from dataclasses import dataclass
import torch

@dataclass
class Head:
    outputs: int
    dtype: torch.dtype = torch.float32

    def build(self, x):
        return torch.ones(self.outputs, dtype=self.dtype) + (x * 2).to(x.dtype)

class Config:
    def __init__(self, width, dtype=torch.bfloat16):
        self.width, self.heads = width, []
        self.dtype = dtype

def configured():
    config = Config(12)
    config.heads = [Head(1, config.dtype), Head(outputs=3), Head(7, dtype=torch.float16)]
    return config
"""


def found(read: str, program: str = PROGRAM) -> tuple[list[str], str, int] | None:
    """What gives the attribute of an expression its value: given, default, number of reads."""
    file = ProgramText({"p.py": program.splitlines(keepends=True)}).parsed("p.py")
    reads = (n for n in ast.walk(file.tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))
    node = next(n for n in reads if ast.unparse(n) == read)
    setting = attributes.setting({"p.py": file}, "p.py", node)
    if setting is None:
        return None
    default = ast.unparse(setting.default[1]) if setting.default else ""
    return [ast.unparse(value) for _, value in setting.given], default, setting.reads


def test_a_field_has_what_the_constructors_pass_and_its_default():
    assert found("self.dtype") == (["config.dtype", "torch.float16"], "torch.float32", 1)


def test_the_default_is_left_out_where_every_call_passes_the_field():
    assert found("self.dtype", PROGRAM.replace("outputs=3", "3, config.dtype"))[1] == ""


def test_a_class_is_known_by_all_that_is_read_from_its_object():
    assert found("config.dtype") == (["dtype"], "", 1), "not the head's, which has no heads"


def test_a_tensor_s_dtype_is_no_setting():
    assert found("x.dtype", PROGRAM) is None


def test_what_is_unclear_is_not_followed():
    assert found("self.dtype", PROGRAM.replace("outputs=3", "**given")) is None
    assert found("self.dtype", PROGRAM + "class Wide(Head): pass\n") is None
