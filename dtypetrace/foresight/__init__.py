"""What a run would have done in other dtypes: recorded ops are carried through again by the table of operator rules.

Pure: no torch, no model, no text. ``what_if`` answers people, ``refused_after`` answers the advice before it is shown.
"""

from .carry import refused_after
from .changes import DtypeChange, UnknownNameError, resolve
from .forecast import Forecast, Predicted, what_if

__all__ = ["DtypeChange", "Forecast", "Predicted", "UnknownNameError", "refused_after", "resolve", "what_if"]
