"""The traces of several ranks as one: equal findings once, with their ranks; disagreements first; missing ranks named."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import recordings
import validated
import warm
from recordings import RecordingBuilder

from dtypetrace import report, saved
from dtypetrace.commands import rank_parts
from dtypetrace.compare.ranks import Part, merge, named
from dtypetrace.records import Parameter, Results
from dtypetrace.results import conclude


def rank(
    *, broken: bool = False, weight: str = "bfloat16", reduced: str = "bfloat16", batch: int = 4, sharded: bool = False
) -> Results:
    """What one rank saw: a healthy step, or one that is refused; its head's weight; the dtype that it sends."""
    b = RecordingBuilder()
    x = b.made("bfloat16", text="x = «torch.randn(4, 4, dtype=torch.bfloat16)»", shape=(batch, 4))
    own = b.made(weight, "cast", explicit=True, text="net.head.to(«dtype»)").as_parameter("net.head.weight")
    b.parameters += [Parameter(f"net.{name}.weight", weight, 16, own.event) for name in ("head", "tail")]
    b.ran(
        "allreduce_",
        dataclasses.replace(x, dtype=reduced),
        aten="c10d.allreduce_.default",
        phase="other",
        text="«dist.all_reduce(x)»",
    )
    mask = b.made("float32", text="mask = «torch.ones(4, 4)»", shape=(batch, 4))
    if broken:
        b.refused("linear", mask, own, text="y = «net(mask)»")
    recording = b.recording
    if sharded:
        b.ran("all_gather", x, aten="c10d._allgather_base_.default", module="net", text="«net(x)»")
        recording = b.recording
    return conclude(recording)


def merged(*results: Results, world: int = 0) -> Results:
    return merge([Part(n, r) for n, r in enumerate(results)], world)


# ---------------------------------------------------------------- findings


def test_healthy_ranks_are_one_healthy_report():
    found = merged(*[rank()] * 4)
    assert found.findings == () and found.recording.not_seen == ()
    assert found.recording.meta["ranks"] == "0, 1, 2, 3"


def test_equal_findings_are_shown_once_whatever_their_shapes():
    (found,) = merged(*[rank(broken=True, batch=2 + n) for n in range(4)]).findings
    assert found.code == "DT101" and found.notes[0] == "on all 4 ranks"


def test_what_some_ranks_have_stands_first_with_their_names():
    common = conclude(_widening())
    both = Results(common.recording, (*rank(broken=True).findings, *common.findings))
    found = merged(common, both, common, both).findings
    assert [f.code for f in found] == ["DT101", *(f.code for f in common.findings)]
    assert found[0].notes[0] == "on ranks 1, 3 only, not on ranks 0, 2"


def _widening():
    b = RecordingBuilder()
    b.refused(
        "conv2d",
        b.made("float32"),
        b.made("float16", "cast", explicit=True).as_parameter("net.conv.weight"),
        code="DT102",
    )
    return b.recording


def test_two_findings_of_one_rank_that_look_alike_stay_two():
    own = rank(broken=True)
    twice = Results(own.recording, own.findings * 2)
    assert len(merged(twice, twice).findings) == 2


# ---------------------------------------------------------------- disagreements


def test_a_parameter_of_another_dtype_on_one_rank_is_a_finding_of_its_own():
    found = merged(*[rank()] * 3, rank(weight="float32"), *[rank()] * 4).findings[0]
    assert found.kind == "rank-disagreement" and found.severity == "error"
    assert found.title == "net.head.weight is bfloat16 on ranks 0 to 2, 4 to 7 and float32 on rank 3"
    assert found.culprit.dtype == "float32" and found.culprit.origin.place.line == 2
    assert any("net.tail.weight" in note for note in found.notes)


def test_of_two_ranks_neither_is_called_wrong():
    found = merged(rank(), rank(weight="float16")).findings[0]
    assert found.title == "net.head.weight is bfloat16 on rank 0 and float16 on rank 1"
    assert found.culprit is None and {o.dtype for o in found.operands} == {"bfloat16", "float16"}


def test_a_collective_that_sends_another_dtype_is_found():
    found = merged(rank(), rank(), rank(reduced="float32")).findings[0]
    assert (
        found.title == "allreduce at /p/train.py:3 is bfloat16 on ranks 0, 1 and float32 on rank 2"
        or found.op == "collective"
    )
    assert found.site.line == 3


def test_a_sharded_rank_whose_recording_broke_off_makes_no_disagreement():
    found = merged(rank(sharded=True), rank(sharded=True, broken=True, weight="float16")).findings
    assert "rank-disagreement" not in {f.kind for f in found}
    found = merged(rank(sharded=True), rank(sharded=True, weight="float16")).findings
    assert "rank-disagreement" in {f.kind for f in found}


def test_the_report_of_a_disagreement_is_shown_and_follows_the_schemas():
    results = merged(rank(), rank(weight="float16"), rank())
    validated.check(results.recording, results.findings)
    text = report.text(results.recording, results.findings)
    assert "error[DT117]: net.head.weight is bfloat16 on ranks 0, 2 and float16 on rank 1" in text


# ---------------------------------------------------------------- ranks


@pytest.mark.parametrize(
    ("ranks", "world", "words"),
    [([0, 1], 2, "all 2 ranks"), ([1], 2, "rank 1"), ([0, 1, 2, 4, 5, 9], 12, "ranks 0 to 2, 4, 5, 9")],
)
def test_ranks_are_named_in_words(ranks, world, words):
    assert named(ranks, world) == words


def test_missing_ranks_are_said():
    found = merge([Part(0, rank()), Part(2, rank())], 5)
    assert found.recording.not_seen[0] == "ranks 1, 3, 4: there is no trace of them"


def test_two_traces_of_one_rank_and_none_are_refused():
    with pytest.raises(ValueError, match="two traces are of rank 1"):
        merge([Part(1, rank()), Part(1, rank())])
    with pytest.raises(ValueError, match="nothing"):
        merge([])


def test_64_ranks_are_joined_in_seconds(tmp_path):
    """Traces made, not run; they are read from files, too."""
    recording, findings = recordings.many(300, findings=20)
    own = rank_parts.Job(0, 64, tmp_path)
    for n in range(64):
        odd = dataclasses.replace(
            recording, parameters=(Parameter("net.w", "float32" if n == 17 else "float16", 4, 0),)
        )
        job = dataclasses.replace(own, rank=n)
        saved.save(tmp_path / f"rank{n}.trace", rank_parts.with_rank(Results(odd, findings), job, stopped=False))
    parts = [rank_parts.part(file) for file in tmp_path.glob("rank*.trace")]
    began = time.process_time()
    found = merge(parts)
    assert time.process_time() - began < 30
    assert len(found.findings) == 21 and found.findings[0].title.endswith("float32 on rank 17")
    assert found.findings[0].title.startswith("net.w is float16 on ranks 0 to 16, 18 to 63")


# ---------------------------------------------------------------- the last process


def test_only_the_last_process_reads_the_parts(tmp_path):
    jobs = [rank_parts.Job(n, 3, tmp_path / "job") for n in range(3)]
    for job in jobs:
        job.begin()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        (tmp_path / "job" / "rank1.pid").write_text(str(sleeper.pid))
        jobs[0].add(rank(), stopped=False)
        assert jobs[0].take() is None  # rank 1 still runs
    finally:
        sleeper.kill()
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # it has ended, but its status was not read
    (tmp_path / "job" / "rank2.pid").write_text("999999999")  # a process that is gone
    parts = jobs[0].take()  # nothing waits for the killed process, even before its status is read
    assert [p.rank for p in parts] == [0] and not (tmp_path / "job").exists()
    sleeper.wait()
    assert jobs[2].take() is None


def test_a_single_process_is_no_job(monkeypatch):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert rank_parts.job() is None
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert rank_parts.job() is None
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert rank_parts.job().world == 2


# ---------------------------------------------------------------- the command


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return warm.run(["-m", "dtypetrace", "show", *words], folder)


def test_the_command_joins_files(tmp_path):
    for n, own in enumerate((rank(), rank(broken=True))):
        saved.save(
            tmp_path / f"run.rank{n}.trace", rank_parts.with_rank(own, rank_parts.Job(n, 3, tmp_path), stopped=False)
        )
    ended = command(
        tmp_path,
        "run.rank1.trace",
        "run.rank0.trace",
        "--save",
        "all.trace",
        "--html",
        "all.html",
        "--fail-on",
        "error",
    )
    assert ended.returncode == 1, ended.stderr
    assert (
        "on rank 1 only, not on rank 0" in ended.stdout and "not seen: rank 2: there is no trace of it" in ended.stdout
    )
    assert saved.load(tmp_path / "all.trace").findings and (tmp_path / "all.html").exists()
    ended = command(tmp_path, "run.rank1.trace", "run.rank1.trace")
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and "two traces are of rank 1" in ended.stderr
