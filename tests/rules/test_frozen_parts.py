"""What a frozen part that was cast by itself gives to what is trained beside it, where no weight meets it directly."""

from __future__ import annotations

import programs
import pytest

MODEL = """
class Merged(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower, self.embed = nn.Linear(4, 8), nn.Embedding(6, 8)
        self.tower.requires_grad_(False)
        {cast}
    def forward(self, ids, x):
        seen, text = self.tower(x.to(self.tower.weight.dtype)), self.embed(ids)
        return ({merge}).float().square().mean()
net = Merged()
optimizer = torch.optim.SGD(net.embed.parameters(), 0.1)
net(torch.arange(6), torch.randn(6, 4)).backward()
optimizer.step()
"""
PART = "self.tower.to(torch.bfloat16)  #!"


@pytest.mark.parametrize(
    ("merge", "edit"),
    [
        ("text.masked_scatter(ids[:, None] > 3, seen)", "seen.float()"),
        ("text.index_copy(0, ids, seen)", "seen.float()"),
        ("torch.bmm(text[None], seen.t()[None])", "seen.t()[None].float()"),
    ],
)
def test_the_part_is_cast_back_where_the_trained_rest_takes_it(merge, edit, tmp_path):
    program = programs.run(tmp_path, MODEL.format(cast=PART, merge=merge))
    f = program.only
    assert program.at(f.culprit.origin.place).endswith("#!"), program.trace
    assert [e.after for e in f.fix.edits] == [edit]


def test_a_part_that_is_kept_wide_beside_narrow_trained_weights_is_cast_back(tmp_path):
    text = MODEL.format(cast=PART.replace("bfloat16", "float64"), merge="text.masked_scatter(ids[:, None] > 3, seen)")
    f = programs.run(tmp_path, text).only
    assert (f.culprit.dtype, [e.after for e in f.fix.edits]) == ("float64", ["seen.float()"])


def test_a_model_of_one_dtype_is_none_of_parts(tmp_path):
    cast = "self.to(torch.bfloat16); self.seen = torch.ones(6, 8)"
    f = programs.run(tmp_path, MODEL.format(cast=cast, merge="text.masked_scatter(ids[:, None] > 3, self.seen)")).only
    assert (f.culprit.dtype, f.fix.kind) == ("float32", "dtype")
