"""The ranks of one job: each writes its part when it ends; the last process of a machine joins what is there.

No rank talks to another one or waits for it. A rank that has written its part looks whether another process of the job
on this machine still runs. If none does, it is the last one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..compare.ranks import Part
    from ..records import Results


@dataclass(frozen=True)
class Job:
    """This rank's place in a job of several ranks, and the folder that the ranks of this machine share."""

    rank: int
    world: int
    folder: Path

    def begin(self) -> None:
        """Says that this rank runs."""
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._file("pid").write_text(str(os.getpid()))
            self._file("trace").unlink(missing_ok=True)

    def add(self, results: Results, *, stopped: bool) -> None:
        """Writes this rank's part, whole or not at all. ``stopped``: the script did not run to its end. Raises OSError
        where it cannot be written."""
        from .. import saved

        saved.save(self._file("trace"), with_rank(results, self, stopped=stopped))

    def take(self) -> list[Part] | None:
        """The parts of all ranks of this machine, for the last of its processes; None for the others. Removes them."""
        if any(_runs(pid) for pid in self._others()):
            return None
        with suppress(OSError):  # two ranks that end at once both find that none runs: one of them takes the parts
            os.close(os.open(self.folder / "taken", os.O_CREAT | os.O_EXCL))
            import shutil

            parts = [part(file) for file in sorted(self.folder.glob("rank*.trace"))]
            shutil.rmtree(self.folder, ignore_errors=True)
            return parts
        return None

    def _others(self) -> list[int]:
        """The processes of ranks that began here and have not written their parts."""
        waited = [f for f in self.folder.glob("rank*.pid") if not f.with_suffix(".trace").exists()]
        return [int(file.read_text() or 0) for file in waited]

    def _file(self, kind: str) -> Path:
        return self.folder / f"rank{self.rank}.{kind}"


def job() -> Job | None:
    """The job that a launcher started this process for; None for a single process."""
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and world.isdecimal() and int(world) > 1):
        return None
    import hashlib
    import tempfile

    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
    said = [str(os.getppid()), *(os.environ.get(name, "") for name in names)]
    key = hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]
    return Job(int(rank), int(world), Path(tempfile.gettempdir()) / f"dtypetrace-{os.getuid()}-{key}")


def with_rank(results: Results, own: Job, *, stopped: bool) -> Results:
    """The results, with the rank that they are of, and whether its script was stopped before its end."""
    meta = {**results.recording.meta, "rank": own.rank, "world": own.world, "stopped": stopped}
    return replace(results, recording=replace(results.recording, meta=meta))


def part(file: Path, rank: int = 0) -> Part:
    """The part in a file. ``rank``: that of a trace that does not say its own. Raises TraceFileError and OSError."""
    from .. import saved
    from ..compare.ranks import Part

    results = saved.load(file)
    return Part(int(results.recording.meta.get("rank", rank)), results)


def _runs(pid: int) -> bool:
    if pid in (0, os.getpid()):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it runs, as another user
        return True
    return not _zombie(pid)


def _zombie(pid: int) -> bool:
    """Whether a process has ended, and its launcher has not yet asked how. Where ``/proc`` does not say: no."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    return False
