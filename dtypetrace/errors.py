"""The exceptions that a user may catch. All of them have one base class; an error in dtypetrace's own work is none of
them: it never leaves a trace.

Standard library only.
"""

from __future__ import annotations


class DtypetraceError(Exception):
    """The base of all errors that dtypetrace raises about what it was asked."""


class UsageError(DtypetraceError):
    """The request of a command cannot be run. The text says why and what to do; the exit status is 2."""


class UnknownNameError(DtypetraceError, ValueError):
    """Nothing of that name was recorded."""


class UnknownDtypeError(DtypetraceError, ValueError):
    """No dtype has that name, or not one of the kind that is needed."""


class UnknownCodeError(DtypetraceError, LookupError):
    """No page explains the request. The text says so in one line, with what can be asked instead."""


class TraceFileError(DtypetraceError, ValueError):
    """A file that is no saved trace, or one that this version cannot read."""


class ContractError(DtypetraceError, ValueError):
    """A text that is no contract."""


class FoundError(DtypetraceError, RuntimeError):
    """Ends a run that was to end with such findings (``fail_on=``)."""
