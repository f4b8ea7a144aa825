"""What is wrong, who is the culprit and what to change: pure functions over a recording, without torch."""

from .findings import cause, find, judge

__all__ = ["cause", "find", "judge"]
