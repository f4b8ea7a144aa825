"""What a run would have done in other dtypes: recorded ops are computed again, dtypes only, from the table of operator
rules.

Pure: no torch, no model, no text. ``what_if`` is for people; a ``Replay`` checks a fix before it is advised.
"""

from .calls import predict, refused_with
from .carry import Replay, given_again, refused_again
from .changes import DtypeChange, resolve
from .forecast import Forecast, Predicted, what_if

__all__ = [
    "DtypeChange",
    "Forecast",
    "Predicted",
    "Replay",
    "given_again",
    "predict",
    "refused_again",
    "refused_with",
    "resolve",
    "what_if",
]
