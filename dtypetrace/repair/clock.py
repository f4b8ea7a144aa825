"""The time that all runs of ``dtypetrace fix`` may take together."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

WORTH = 240.0
"""Seconds that the runs after the first one may take, unless the command line names a budget ..."""
LEAST_RUNS = 4
"""... or as long as so many runs, if that is more."""
SHORT = 10.0
"""Seconds: of a run that takes less, nothing is said about its time."""


class OutOfTime(RuntimeError):
    """The time that the runs may take is used up."""


@dataclass
class Clock:
    """``limit``: seconds for all runs together; None: what ``WORTH`` and ``LEAST_RUNS`` say, from the first run's
    time."""

    limit: float | None = None
    began: float = field(default_factory=time.monotonic)
    longest: float = 0.0
    """Seconds of the longest run so far."""

    @property
    def ends(self) -> float | None:
        """Seconds after the beginning at which no run goes on; None before the first run without a budget."""
        if self.limit is not None:
            return self.limit
        return self.longest + max(WORTH, LEAST_RUNS * self.longest) if self.longest else None

    @property
    def used(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        """Seconds that a run may take; None for any."""
        return self.ends - self.used if self.ends is not None else None

    def start(self) -> None:
        """Before a run. Raises OutOfTime where one as long as the last ones would not reach its end."""
        if self.left is not None and self.left < self.longest:
            raise OutOfTime(self.over)

    def took(self, seconds: float) -> None:
        """After a run."""
        self.longest = max(self.longest, seconds)

    @property
    def over(self) -> str:
        return f"the time for all runs is used up ({in_words(self.ends or 0)}); --budget gives them more"

    @property
    def planned(self) -> str:
        """How long the runs after the first one may take, in words; empty where nobody waits for it."""
        if self.longest < SHORT or self.ends is None:
            return ""
        once, all_of_them = in_words(self.longest), in_words(self.ends)
        return f"run 1 took {once}. The next runs take about as long each; they end after {all_of_them} (--budget)"

    @property
    def passed(self) -> str:
        """How much time is used, for the line with which a run begins; empty where nobody waits for it."""
        return f" (after {in_words(self.used)} of {in_words(self.ends)})" if self.planned and self.ends else ""


def in_words(seconds: float) -> str:
    """A duration as people say it.

    >>> in_words(0.4), in_words(31.2), in_words(403)
    ('1 s', '31 s', '7 min')
    """
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(seconds, 1):.0f} s"
