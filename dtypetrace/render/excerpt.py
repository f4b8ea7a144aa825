"""Source lines on the console: numbered, with a marked span and its label below, or as a diff."""

from __future__ import annotations

import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ..records import Edit, Frame, Recording
from .edits import change
from .layout import CUT, Display, columns

StyledLine = tuple[str, str]
"""One line of text, and rich's name of its style."""

_LEAST_LABEL = 40
"""The least number of columns for a label below its marks: narrower text is hard to read."""


@dataclass(frozen=True)
class Span:
    """A line of code as it is shown, and which of its columns are marked."""

    frame: Frame
    line: str
    before: int
    marks: int

    def same_line(self, other: Span) -> bool:
        return (self.frame.file, self.frame.line, self.line) == (other.frame.file, other.frame.line, other.line)


@dataclass(frozen=True)
class Excerpt:
    """How lines of one recording's source are shown: the display, and the columns that line numbers take."""

    display: Display
    recording: Recording
    margin: int

    @property
    def gutter(self) -> str:
        return f"{' ' * self.margin} | "

    @property
    def room(self) -> int:
        """Columns left for code."""
        return self.display.width - len(self.gutter)

    def _numbered(self, number: int, line: str) -> str:
        return f"{str(number).rjust(self.margin)} | {line}"

    def _fits(self, line: str) -> bool:
        return columns(self.display.printable(line)) <= self.room

    def _cut(self, line: str) -> str:
        """A line's beginning, as far as it fits."""
        return self.display.clipped(self.display.printable(line), 0, 1, self.room)[0]

    # ------------------------------------------------------------ labelled spans

    def span(self, frame: Frame, above: Span | None = None) -> Span:
        """The line of a frame, cut so that its span is visible; or as the span above it shows the same line, if its own
        begins there."""
        written = self.recording.line(frame.file, frame.line)
        if not self._fits(written):
            written = _without_comment(written)
        indented = len(written) - len(written.lstrip())
        begin = frame.column - 1 if frame.column else indented  # without a column: the whole line
        end = (frame.end_column or 1) - 1 if frame.end_line == frame.line else len(_without_comment(written))
        begin = begin if begin < len(written) else len(written) - len(written.lstrip())
        head, span = self.display.printable(written[:begin]), self.display.printable(written[:end])
        if above is not None and (above.frame.file, above.frame.line) == (frame.file, frame.line):
            begins = above.line.removesuffix(CUT)
            if columns(head) < columns(begins) and self.display.printable(written).startswith(begins):
                visible = min(columns(span), columns(above.line)) - columns(head)
                return Span(frame, above.line, columns(head), max(1, visible))
        line, begin, end = self.display.clipped(
            self.display.printable(written), len(head), max(len(span), len(head) + 1), self.room
        )
        return Span(frame, line, columns(line[:begin]), max(1, columns(line[begin:end])))

    def labelled(self, span: Span, label: str, mark: str, above: Span | None) -> list[StyledLine]:
        """The line (unless it was just shown) and below it the marked span with its label."""
        marks, style = mark * span.marks, "red" if mark == "^" else "yellow"
        if not span.line.strip():
            head = self._numbered(span.frame.line, "")
            return styled(self.display.wrapped(head, f"(no source) {label}", self.gutter), style)
        repeated = above is not None and span.same_line(above)
        shown = [] if repeated else [*self._lead(span.frame), (self._numbered(span.frame.line, span.line), "")]
        label = self.display.printable(label)
        if span.before + len(marks) + 1 + columns(label) <= self.room:
            return [*shown, (f"{self.gutter}{' ' * span.before}{marks} {label}", style)]
        # the label goes below the marks, from their first column; further left where there would be too little room
        if not (repeated and above is not None and (span.before, span.marks) == (above.before, above.marks)):
            shown.append((f"{self.gutter}{' ' * span.before}{marks}", style))
        indent = self.gutter + " " * max(0, min(span.before, self.room - _LEAST_LABEL))
        return [*shown, *styled(self.display.wrapped(indent, label, indent), style)]

    def _lead(self, frame: Frame) -> list[StyledLine]:
        """The first line of an expression over several lines, if the marked line is only its end."""
        begin = self.recording.sources.begin(frame)
        return self._first_line(frame.file, begin, frame.line) if begin is not None else []

    def _first_line(self, file: str, begin: int, line: int) -> list[StyledLine]:
        """The line on which a longer expression begins, and dots for the lines between."""
        between = [(f"{'.' * 3:>{self.margin}}", "blue")] if line - begin > 1 else []
        return [(self._numbered(begin, self._cut(self.recording.line(file, begin))), ""), *between]

    def source(self, file: str, number: int, label: str) -> list[StyledLine]:
        """One line as it is and its label, below an empty one; nothing where the text is not known."""
        text = self.recording.line(file, number)
        shown = self._cut(text)
        indent = " " * (len(shown) - len(shown.lstrip()))
        below = f"{self.gutter}{indent}{label}"
        return [(self.gutter.rstrip(), ""), (self._numbered(number, shown), ""), (below, "")] if text.strip() else []

    # ------------------------------------------------------------ edits

    def edited(self, edit: Edit) -> list[StyledLine]:
        """What an edit changes, as a diff; what it adds stays whole, so that it can be copied."""
        block = change(self.recording, edit)
        if block is None:
            return []
        lines: list[StyledLine] = [(self.gutter.rstrip(), "")]
        for sign, same in groupby(zip(block.numbers, block.lines), lambda line: line[1][0]):
            run, (ends, bar, style) = list(same), _SIGNS[sign]
            for at, (number, (_, text)) in enumerate(run):
                if not ends <= at < len(run) - ends:
                    shown = self.display.printable(text) if sign == "+" else self._cut(text)
                    lines.append((f"{str(number).rjust(self.margin)} {bar} {shown}".rstrip(), style))
                elif at == ends:
                    lines.append((f"{'.' * 3:>{self.margin}}", style))
        return lines


_SIGNS = {"-": (4, "-", "red"), "+": (4, "+", "green"), " ": (1, "|", "")}
"""By a line's sign in a diff: how many are shown at each end of several, what stands before them, and their style."""


def styled(lines: Sequence[str], style: str) -> list[StyledLine]:
    return [(line, style) for line in lines]


def _without_comment(line: str) -> str:
    try:
        for token in tokenize.generate_tokens(iter([line]).__next__):
            if token.type == tokenize.COMMENT:
                return line[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError, StopIteration):  # part of a statement: the tokens so far had no comment
        pass
    return line.rstrip()
