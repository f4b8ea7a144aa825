"""Integers that were divided are whole where the program computes on with them, and not only in the refused call."""

from __future__ import annotations

import pytest
import warm

HEAD = "import torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
BEAMS = """
embed = nn.Embedding(5, 4)
scores = torch.randn(2, 15)
picked = scores.topk(3).indices
beam = picked / 5
word = picked - beam * 5
kept = torch.gather(torch.randn(2, 3), 1, beam)
print(kept.sum().item(), embed(word).sum().item())
"""
GRID = """
grid = torch.randn(4, 6)
cell = grid.flatten().argsort(descending=True)[:5]
row = cell / 6
column = cell - row * 6
print(grid.index_select(0, row).sum().item(), grid[:, column.long()].sum().item())
"""
PAGES = """
pages = torch.randn(3, 4, 2)
position = torch.tensor([1, 5, 11])
page = torch.div(position, 4)
slot = position - page * 4
print(torch.take_along_dim(pages, page[:, None, None], 0).sum().item(), slot.tolist())
"""


@pytest.mark.parametrize("text", [BEAMS, GRID, PAGES], ids=["beams", "a grid", "pages"])
def test_the_healed_run_computes_on_with_fractions(tmp_path, text):
    (tmp_path / "program.py").write_text(HEAD + text)
    done = warm.run(["-m", "dtypetrace", "fix", "program.py"], tmp_path, timeout=300)
    assert "with the fractions of what it casts to an index, so it is not compared" in done.stderr, done.stderr
    assert "\nproven: nothing is refused" in done.stderr


def test_fractions_that_were_no_integers_are_compared(tmp_path):
    text = BEAMS.replace("picked / 5", "picked.float() / 5")
    (tmp_path / "program.py").write_text(HEAD + text)
    done = warm.run(["-m", "dtypetrace", "fix", "program.py"], tmp_path, timeout=300)
    assert "with the fractions" not in done.stderr
