"""What is wrong, who is the culprit and what to change: pure functions over a recording, without torch."""

from .findings import cause, find, finding_of, judge, judged, other_side, ruling

__all__ = ["cause", "find", "finding_of", "judge", "judged", "other_side", "ruling"]
