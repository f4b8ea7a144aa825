"""More programs of the silent kinds that the first sealed batch showed: what they choose, mask and count in too narrow a
dtype; and healthy ones that look like them."""

import programs
import pytest

CHOICES = {
    "the nearest code": (
        """
        torch.manual_seed(0)
        points, codes = torch.randn(256, 16), torch.randn(512, 16)
        distances = torch.cdist(points, codes).to(torch.bfloat16)
        nearest = distances.argmin(-1)
        found = codes[nearest]
        """,
        ".to(torch.bfloat16)",
    ),
    "the likeliest words": (
        """
        torch.manual_seed(0)
        logits = torch.randn(64, 4000) * 0.1
        likely = logits.softmax(-1).bfloat16()
        words = likely.topk(8, -1).indices
        kept = torch.zeros(64, 4000).scatter(-1, words, 1.0)
        """,
        ".bfloat16()",
    ),
    "a ranking": (
        """
        torch.manual_seed(0)
        scores = torch.rand(1000) + 8
        coarse = scores.half()
        order = coarse.argsort()
        ranked = torch.arange(1000.0)[order]
        """,
        "scores.half()",
    ),
    "a ranking by what a sigmoid leaves": (
        """
        torch.manual_seed(0)
        scores = (torch.randn(60) + 6).bfloat16()
        order = scores.sigmoid().sort(descending=True, stable=True).indices
        """,
        ".bfloat16()",
    ),
    "the tail of a distribution": (
        """
        torch.manual_seed(0)
        likely = torch.cat([torch.full((64,), 0.7 / 64), torch.full((6000,), 0.3 / 6000)]).log().expand(200, -1)
        sums = likely.softmax(-1).bfloat16().cumsum(-1)
        words = torch.searchsorted(sums.float(), torch.rand(200, 1))
        """,
        ".bfloat16()",
    ),
    "alarms by a moving mean": (
        """
        torch.manual_seed(0)
        counts = torch.poisson(20 + 15 * torch.sin(torch.arange(1440) / 200))
        running = counts.cumsum(0).half()
        mean = (running[5:].float() - running[:-5].float()) / 5
        alarms = (mean > 33).sum()
        """,
        ".half()",
    ),
    "a threshold for what is near the mean": (
        """
        torch.manual_seed(0)
        heights = (400 + 3 * torch.randn(2000)).bfloat16()
        high = (heights.float() - 400).abs() > 6
        """,
        ".bfloat16()",
    ),
}

MASKS = {
    "float16": "a, b = m(torch.float16), m(torch.float16)",
    "bfloat16, three": "a, b = m(torch.bfloat16), m(torch.bfloat16) + 0 * m(torch.bfloat16).clamp(-1, 0)",
    "float32": "a, b = m(torch.float32), m(torch.float32)",
}

COUNTS = {
    "scores in bins": ("torch.histc(x, 10, 0, 1)", "histc"),
    "votes": (
        "torch.zeros(4, dtype=torch.bfloat16).index_add_(0, places, torch.ones(4096, dtype=torch.bfloat16))",
        "votes",
    ),
    "a running count": ("torch.ones(4096, dtype=torch.bfloat16).cumsum(0)", "cumsum"),
}


def serious(program):
    return [f for f in program.findings if f.severity != "note"]


@pytest.mark.parametrize(("text", "line"), CHOICES.values(), ids=CHOICES)
def test_what_is_chosen_by_rounded_numbers(tmp_path, text, line):
    program = programs.run(tmp_path, text, numerics=True)
    assert any(line in program.at(f.culprit.origin.place) for f in serious(program))


@pytest.mark.parametrize("made", MASKS.values(), ids=MASKS)
def test_masks_that_add_up_to_minus_infinity_and_become_nan(tmp_path, made):
    text = f"""
    def m(dtype):
        return torch.full((4, 4), torch.finfo(dtype).min, dtype=dtype)
    {made}
    mask = a + b
    weights = (torch.randn(4, 4) + mask.float()).softmax(-1)
    out = weights @ torch.randn(4, 2)
    """
    found = serious(programs.run(tmp_path, text, numerics=True))
    assert [f.code for f in found][:1] == ["DT301"]


@pytest.mark.parametrize(("made", "named"), COUNTS.values(), ids=COUNTS)
def test_counts_that_stand_still(tmp_path, made, named):
    text = f"""
    torch.manual_seed(0)
    x, places = (torch.rand(30000).square() * 0.3).half(), (torch.arange(4096) % 16 == 0).long()
    votes = {made}
    share = votes.float() / votes.float().sum()
    print(share)
    """
    program = programs.run(tmp_path, text, numerics=True)
    assert serious(program) and any(named in program.at(f.site) for f in serious(program))


HEALTHY = {
    "one mask whose rows are never all hidden": """
        mask = torch.full((4, 4), torch.finfo(torch.float16).min, dtype=torch.float16).triu(1)
        out = (torch.randn(4, 4) + mask.float()).softmax(-1) @ torch.randn(4, 2)
        """,
    "two masks of which nothing is NaN": """
        a = torch.full((4, 4), torch.finfo(torch.float16).min, dtype=torch.float16).triu(1)
        out = (torch.randn(4, 4) + (a + a).float()).softmax(-1) @ torch.randn(4, 2)
        """,
    "a choice of what is far apart": """
        scores = (torch.arange(64.0)[torch.randperm(64)]).bfloat16()
        best = torch.arange(64.0)[scores.topk(4).indices]
        """,
    "a choice before the cast": """
        scores = torch.randn(64, 100).softmax(-1)
        values, places = scores.topk(4)
        out = torch.zeros(64, 100, dtype=torch.bfloat16).scatter(-1, places, values.bfloat16())
        """,
    "a draw from a small vocabulary": """
        sums = torch.randn(64, 16).softmax(-1).bfloat16().cumsum(-1)
        words = torch.searchsorted(sums.float(), torch.rand(64, 1)).squeeze()
        """,
    "ties that were ties before": """
        ratings = (torch.rand(500) * 5).round().bfloat16()
        order = ratings.sort(descending=True, stable=True).indices
        """,
    "the likeliest words of a large vocabulary": """
        logits = (torch.randn(4, 50000) * 3).bfloat16()
        ordered, places = logits.sort(descending=True)
        gone = ordered.softmax(-1).cumsum(-1) > 0.9
        logits = logits.masked_fill(gone.scatter(1, places, gone), -torch.inf)
        """,
    "a threshold for probabilities": "sure = (torch.randn(4000) * 2).sigmoid().bfloat16() > 0.9",
    "a first moment that the program keeps in bfloat16": """
        net = nn.Linear(8, 8)
        mean = torch.zeros_like(net.weight, dtype=torch.bfloat16)
        for _ in range(40):
            net(torch.randn(4, 8)).square().mean().backward()
            with torch.no_grad():
                new = 0.9 * mean.float() + 0.1 * net.weight.grad
                mean.copy_(new)
                net.weight.sub_(0.1 * new)
                net.weight.grad = None
        """,
    "running statistics that the program keeps in float16": """
        level = torch.zeros(16, dtype=torch.float16)
        for _ in range(40):
            x = torch.randn(64, 16) + 1
            level[:] = 0.8 * level.float() + 0.2 * x.mean(0)
            out = x - level.float()
        """,
    "a state that the program keeps in bfloat16": """
        state = torch.zeros(4, 8).to(torch.bfloat16)
        cell = nn.Linear(16, 8)
        for _ in range(20):
            state.copy_(torch.tanh(cell(torch.cat((torch.randn(4, 8), state.float()), 1))).detach())
        """,
    "counts in float32": """
        x = torch.rand(30000).half()
        counts = torch.histc(x.float(), 10, 0, 1)
        share = counts / counts.sum()
        """,
}


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_healthy_programs_that_look_like_them(tmp_path, text):
    assert serious(programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)) == []


@pytest.mark.parametrize("whole", ["lengths.round()", "lengths.floor().clamp(min=1)", "lengths.int().half()"])
def test_whole_numbers_that_add_up_to_more_than_the_dtype_counts(tmp_path, whole):
    text = f"""
    lengths = (torch.rand(1, 600) * 9 + 1).half()
    ends = ({whole}).cumsum(-1)
    owner = torch.bucketize(torch.arange(5000.0), ends[0].float())
    """
    program = programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)
    assert any("cumsum" in program.at(f.site) for f in serious(program))


def test_whole_numbers_that_the_dtype_counts(tmp_path):
    text = "ends = torch.rand(1, 100).half().mul(9).round().cumsum(-1)\nprint(ends[0, -1].item())"
    assert serious(programs.run(tmp_path, text, before="torch.manual_seed(0)", numerics=True)) == []


STORED = {
    "a table of scores": "store = torch.zeros(64, dtype=torch.bfloat16)\nfor i in range(64):\n    store[i] = scores[i]",
    "a row of a buffer": "store = torch.zeros(2, 64, dtype=torch.bfloat16)\nstore[1] = scores\nstore = store[1]",
    "an out= argument": "store = torch.empty(64, dtype=torch.bfloat16)\nstore.copy_(scores)",
}


@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
def test_what_is_stored_narrow_and_subtracted_later(tmp_path, stored):
    before = "torch.manual_seed(0); scores = torch.randn(64) * 0.1 - 80; now = scores + torch.randn(64) * 0.05"
    text = f"scores = scores * 1.0\n{stored}\nratio = (now - store).exp()\nprint(ratio.mean())"
    program = programs.run(tmp_path, text, before=before, numerics=True)
    assert any("dtype=torch.bfloat16" in program.at(f.culprit.origin.place) for f in serious(program))


FILLS = {
    "made like class numbers": "rest = torch.full_like(hot, 0.05)",
    "filled in place": "rest = hot.clone().fill_(0.05)",
    "where a mask says": "rest = hot.masked_fill(hot == 0, 0.05)",
    "with an integer dtype": "rest = torch.full((8, 4), 0.5, dtype=torch.int64)",
}
ONE_HOT = "hot = F.one_hot(torch.randint(0, 4, (8,)), 4)"


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_a_fraction_that_fills_integers_is_zero(tmp_path, fill):
    text = f"{ONE_HOT}\n{fill}\nloss = -(rest * torch.randn(8, 4).log_softmax(-1)).sum()"
    before = "import torch.nn.functional as F; torch.manual_seed(0)"
    program = programs.run(tmp_path, text, before=before, numerics=True)
    assert [f.code for f in serious(program)] == ["DT203"]
    assert fill.partition(" = ")[2] in program.at(serious(program)[0].site)


WHOLE_FILLS = {
    "a whole number": f"{ONE_HOT}\nrest = torch.full_like(hot, 2.0)\nloss = (rest * torch.randn(8, 4)).sum()",
    "what is only compared": f"{ONE_HOT}\nrest = torch.full_like(hot, 0.5)\nsame = (rest == hot).sum()",
}


@pytest.mark.parametrize("text", WHOLE_FILLS.values(), ids=WHOLE_FILLS)
def test_fills_that_lose_nothing(tmp_path, text):
    before = "import torch.nn.functional as F; torch.manual_seed(0)"
    assert serious(programs.run(tmp_path, text, before=before, numerics=True)) == []


WIDE_DATA = {
    "a variance by squares": "x = data.float()\nspread = ((x * x).mean() - x.mean() ** 2).clamp(min=1e-6).sqrt()",
    "squares less the square of a sum": "x = data.float()\n"
    "spread = ((x.square().sum() - x.sum() ** 2 / len(x)) / len(x)).clamp(min=1e-6).sqrt()",
    "a distance by squares": "x = data.to(torch.float32)\n"
    "far = (x[:, None] ** 2 - 2 * x[:, None] * x + x ** 2).mean().sqrt()",
}


@pytest.mark.parametrize("text", WIDE_DATA.values(), ids=WIDE_DATA)
def test_float64_that_the_program_cast_is_told_at_the_cast(tmp_path, text):
    before = "torch.manual_seed(0); data = 3e4 + torch.randn(200, dtype=torch.float64)"
    program = programs.run(tmp_path, text, before=before, numerics=True)
    found = [f for f in serious(program) if f.code == "DT308"]
    decided = program.at(found[0].culprit.origin.place)
    assert ".float()" in decided or ".to(torch.float32)" in decided


def test_what_a_function_of_torchs_writes_to_its_own_memory_is_no_store(tmp_path):
    """As cuDNN's recurrent layers do with their weights under autocast."""
    program = programs.run(
        tmp_path,
        """
        from torch.overrides import handle_torch_function, has_torch_function_unary

        def gru(x):
            if has_torch_function_unary(x):
                return handle_torch_function(gru, (x,), x)
            flat = torch.empty(64, dtype=torch.float16)
            flat.copy_(x)
            return flat * 2

        weight = torch.randn(64)
        a = torch.randn(8, 8) @ torch.randn(8, 8)
        y = gru(weight)
        """,
    )
    assert program.error is None and "copy_" in {op.aten.partition(".")[0] for op in program.recording.ops}
    assert program.findings == ()
