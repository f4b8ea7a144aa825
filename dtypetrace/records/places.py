"""Where something happened: frames and stacks. Part of :mod:`records`, which names them."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack. ``column`` counts characters from 1 and is None where Python does not say."""

    file: str
    line: int
    function: str
    user: bool
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Place:
    """Where something happened: the frames outside torch and dtypetrace, innermost first.

    ``stack`` is empty where no Python code was running (an op of the backward pass whose forward was not watched); file
    is then ``""`` and line 0.
    """

    stack: tuple[Frame, ...] = ()

    def __repr__(self) -> str:
        name = os.path.basename(self.file)
        return f"<Place {name}:{self.line}{f':{self.column}' if self.column else ''}>"

    @property
    def file(self) -> str:
        return self.stack[0].file if self.stack else ""

    @property
    def line(self) -> int:
        return self.stack[0].line if self.stack else 0

    @property
    def column(self) -> int | None:
        return self.stack[0].column if self.stack else None

    @property
    def end_line(self) -> int | None:
        return self.stack[0].end_line if self.stack else None

    @property
    def end_column(self) -> int | None:
        return self.stack[0].end_column if self.stack else None

    @property
    def function(self) -> str:
        return self.stack[0].function if self.stack else ""

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame of the user's own code; if there is none, the innermost frame."""
        return next((f for f in self.stack if f.user), self.stack[0] if self.stack else None)
