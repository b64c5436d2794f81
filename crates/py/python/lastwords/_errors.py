"""The exceptions of the package."""

from __future__ import annotations

from collections.abc import Sequence


class Error(Exception):
    """Base class of all exceptions of this package."""


class OpenError(Error, OSError):
    """Nothing at the paths can be opened.

    `failures` has a `lastwords.Failure` for each input, with the path and the reason.
    """

    def __init__(self, message: str, failures: Sequence[object] = ()) -> None:
        super().__init__(message)
        self.failures = list(failures)


class ReadError(Error):
    """A part of an input cannot be read.

    `path` is the file, `offset` the place in it in bytes, `value` the number that was found there
    (of a sub-buffer, its number). Each is None if it is not known.
    """

    def __init__(
        self,
        message: str,
        path: str | None = None,
        offset: int | None = None,
        value: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset
        self.value = value


class ArgumentError(Error, ValueError):
    """An argument cannot be: a filter that is no expression, a column that is not there."""


class UnknownEventError(Error, LookupError):
    """No event of the input has this name. `near` has the names that are nearest to it."""

    def __init__(self, name: str, near: Sequence[str] = ()) -> None:
        advice = f"; did you mean {', '.join(near)}?" if near else ""
        super().__init__(f"no event is called {name!r}{advice}")
        self.name = name
        self.near = list(near)


class WriteError(Error, OSError):
    """An output cannot be written. `path` is the file, if it is known."""

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path
