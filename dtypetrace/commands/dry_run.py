"""What stopped a dry run, in one line: where, why, what to do, and how far it came."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..records import Recording

_MOST = 160
_MOST_LINES = 3
_FETCHES = re.compile(
    r"huggingface_hub|requests|urllib|httpx|httpcore|urllib3|http\.client|aiohttp|datasets|modelscope"
)
_OFFLINE = re.compile(
    r"connect|offline|resolve|network|timed out|local_files_only|not (?:be )?f(?:ou|e)nd on (?:the )?(?:hub|disk)"
    r"|not a (?:local|valid) (?:folder|model)|couldn't find|cached files",
    re.I,
)
_NO_KERNEL = re.compile(
    r"Could not run '([\w:.]+)'|no (?:fake|meta) (?:impl|kernel)|([\w:.]+): attempted to run this operator"
)


@dataclass(frozen=True)
class Stopped:
    """How a dry run ended early: the exit status, and one line."""

    status: int
    line: str


def stopped(error: Exception, trace: Any) -> Stopped | None:
    """Why a dry run ended early; None where a refused dtype ended it, which is a finding."""
    recording: Recording = trace.recording
    if any(refused.left for refused in recording.refused):
        return None
    text = " ".join(str(error).split())
    said, at = f"{type(error).__name__}: {_short(text)}", _where(error, trace)
    if trace.dry_run.passes.emptied:
        passes = "it gives batches for two passes over the data, and the program began a third"
        return Stopped(0, f"dtypetrace: the dry run ended{at}: {passes} ({said})")
    why, hint = _why(error)
    if not hint:
        asked = [f"{_relative(f, trace.root)}:{n}" for f, n, *_ in trace.dry_run.values.lines() if trace.is_users(f)]
        values = f", and these asked for values, which were assumed: {', '.join(asked[-_MOST_LINES:])}" if asked else ""
        hint = f"If it does not raise without --dry-run, it needs values that a dry run does not have{values}"
    steps, ops = recording.meta.get("steps", 0), recording.meta.get("ops", 0)
    far = f"after {steps} optimizer step{'s' if steps != 1 else ''} and {ops:,} operators"
    return Stopped(2, f"dtypetrace: error: the dry run stopped{at} {far}: {why} ({said}). {hint}")


def _why(error: Exception) -> tuple[str, str]:
    from ..dryrun.hub import NotPretendedError
    from ..dryrun.values import NeedsValueError

    chain = list(_chain(error))
    if any(isinstance(e, NeedsValueError) for e in chain):
        return "the program needs values", "Let the program skip this part, or end the run before it with --steps N"
    if any(isinstance(e, NotPretendedError) for e in chain):
        return "a dry run cannot load this", "Leave the quantization out for the dry run"
    found = next((m for e in chain if (m := _NO_KERNEL.search(str(e)))), None)
    if found is not None:
        name = next((g for g in found.groups() if g), "an operator")
        return f"{name} has no rule and no meta kernel", "Register a fake kernel for it (torch.library.register_fake)"
    if any(_fetches(e) or isinstance(e, OSError) and _OFFLINE.search(str(e)) for e in chain):
        return "something could not be fetched", "Give a local folder: for a model, one with its config.json is enough"
    return "the program raised", ""


def _chain(error: BaseException | None) -> Any:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _fetches(error: BaseException) -> bool:
    return bool(_FETCHES.match(type(error).__module__ or ""))


def _where(error: Exception, trace: Any) -> str:
    """The innermost line of the user's own code that the exception passed."""
    at, tb = "", error.__traceback__
    while tb is not None:
        file = tb.tb_frame.f_code.co_filename
        if trace.is_users(file):
            at = f" at {_relative(file, trace.root)}:{tb.tb_lineno}"
        tb = tb.tb_next
    return at


def _relative(file: str, root: Path) -> str:
    try:
        return str(Path(file).resolve().relative_to(root))
    except ValueError:
        return file


def _short(text: str) -> str:
    return text if len(text) <= _MOST else text[: _MOST - 3] + "..."
