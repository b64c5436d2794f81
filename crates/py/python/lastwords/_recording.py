"""What users see: recordings, events, and the facts about a crash."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from . import _native
from ._errors import ArgumentError, OpenError

Path = str | os.PathLike[str]
Moment = int | datetime | timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Trace:
    """A trace of an input: a session, or an instance of a kernel's tracer."""

    crash_id: str
    trace: str
    """Its name; `top` is the top level of a kernel."""
    kind: str
    clock: str | None
    """The clock that nothing relates to real time; None if its times are since the epoch."""
    is_dated: bool
    newest_ts: int | None
    """The newest event, in nanoseconds of its clock."""
    streams: int
    has_losses: bool
    lost_events: int | None
    """None if it is not known how many were lost."""
    path: str


@dataclass(frozen=True)
class Loss:
    """A gap, or a sub-buffer that lacks something."""

    crash_id: str
    trace: str
    channel: str | None
    cpu: int | None
    cause: str
    place: str
    is_loss: bool
    """False if nothing was lost that should be there, such as events that were overwritten."""
    events: int | None
    bytes: int | None


@dataclass(frozen=True)
class Failure:
    """An input, or a part of one, that could not be opened."""

    severity: str
    """`note`: it has nothing to recover and was not named. `loss`: it should have something.
    `error`: it was named."""
    why: str


@dataclass(frozen=True)
class Crash:
    """How a program or a kernel ended: a row of the table `crashes`. What is not known is None."""

    crash_id: str
    ts: int | None
    """The end, or else the newest event, in nanoseconds since the epoch."""
    time: datetime | None
    """The same in microseconds, UTC."""
    is_last_seen: bool | None
    """The time is the last sign of life."""
    host: str | None
    kind: str
    name: str
    program: str | None
    release: str | None
    arch: str | None
    hardware: str | None
    bios: str | None
    boot_id: str | None
    cause: str
    """One word: `signal`, `panic`, `exit`, `kernel-panic`, `unknown`, …"""
    signal: int | None
    exit_status: int | None
    why: str
    """The cause in a sentence."""
    panic: str | None
    signature: str | None
    """Equal for crashes of one cause; None if nothing died."""
    stack: str | None
    crash_cpu: int | None
    uptime_ns: int | None
    how_ended: str | None
    has_losses: bool
    lost_events: int | None
    path: str
    reader_version: str
    verdict: dict[str, Any] | None
    """For a session, the evidence: what `lastwords why --json` prints from the input alone."""


class Events:
    """A selection of events, as rows of the table `events`.

    It has the Arrow PyCapsule interface (`__arrow_c_stream__`): pass it to `duckdb.sql`,
    `polars.DataFrame`, `pandas.DataFrame.from_arrow` or `pyarrow.table`. Nothing is read before,
    and each reading is a scan of its own. Events are read by another thread, a few batches ahead
    of the reader. Iterating gives a dictionary for each row.
    """

    def __init__(self, scan: _native.Scan) -> None:
        self._scan = scan

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Start a scan, and return it as a capsule of the name `arrow_array_stream`."""
        return self._scan.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema as a capsule of the name `arrow_schema`."""
        return self._scan.__arrow_c_schema__()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Scan, and yield a dictionary for each row. `time` is a `datetime` in UTC."""
        for rows in self._scan.rows():
            for row in rows:
                yield _dated(row)

    @property
    def columns(self) -> dict[str, str]:
        """The types of the columns by name, in words of Arrow."""
        return dict(self._scan.columns())

    @property
    def faults(self) -> list[Exception]:
        """What the last whole scan could not read: a `ReadError` for each damaged part.

        A scan goes on after damage; what it returns is undamaged. With `strict=True`, the first
        damage ends the stream with an error instead.
        """
        return self._scan.damages()

    @property
    def unfit(self) -> int:
        """Values of the last whole scan that are null because their columns cannot hold them.

        The column `fields` has them exactly.
        """
        return self._scan.unfit()

    def to_parquet(self, path: Path) -> int:
        """Write the rows as a file of Parquet, and return their number.

        The file appears when it is complete. Raises `WriteError`.
        """
        return self._scan.to_parquet(path)

    def __repr__(self) -> str:
        return f"<lastwords.{type(self).__name__} {', '.join(self.columns)}>"


class Table(Events):
    """The occurrences of one event, with its fields as columns.

    The first columns are `crash_id`, `trace`, `channel`, `ts`, `time`, `before_end_ns`, `cpu`,
    `tid`, `pid` and `comm`, as in the table `events`. A field of one of these names has `f_` in
    front. An enumeration has a second column, `NAME_label`. Arrays, structures, and fields whose
    type differs between traces, are JSON. Unsigned integers of 64 bits are UBIGINT.
    """


class Recording:
    """What `lastwords.open` has opened."""

    def __init__(self, native: _native.Recording) -> None:
        self._native = native

    @property
    def traces(self) -> list[Trace]:
        """All traces of the input."""
        return [_made(Trace, row) for row in self._native.traces()]

    @property
    def crashes(self) -> list[Crash]:
        """A crash for each session, each kernel, and each trace of neither."""
        rows = zip(self._native.crashes(), self._native.verdicts(), strict=True)
        return [
            _made(Crash, _dated({**row, "verdict": json.loads(verdict) if verdict else None}))
            for row, verdict in rows
        ]

    @property
    def crash(self) -> Crash:
        """The only crash of the input. Raises `ArgumentError` if there are several, or none."""
        match self.crashes:
            case [crash]:
                return crash
            case crashes:
                raise ArgumentError(f"the input has {len(crashes)} crashes: use .crashes")

    @property
    def losses(self) -> list[Loss]:
        """Each gap and each damaged sub-buffer that is known before events are read.

        Damage inside packets is found by reading: `Events.faults`.
        """
        return [_made(Loss, row) for row in self._native.losses()]

    @property
    def failures(self) -> list[Failure]:
        """Inputs and parts of them that could not be opened."""
        return [Failure(severity, why) for severity, why in self._native.failures()]

    @property
    def notes(self) -> list[str]:
        """Remarks on the input."""
        return self._native.notes()

    @property
    def event_names(self) -> list[str]:
        """The names of all events that the traces describe, without providers."""
        return self._native.event_names()

    def events(
        self,
        names: str | Sequence[str] = (),
        *,
        cpus: Sequence[int] = (),
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        filter: str | None = None,
        ordered: bool = True,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        strict: bool = False,
    ) -> Events:
        """Select events. Nothing is read yet.

        names: globs for `provider:name` or the name alone; all events without it.
        cpus: numbers of CPUs; all without it.
        since, until: nanoseconds since the epoch, a `datetime` with a time zone, or a `timedelta`
            before the newest event of the input.
        last: only the last events of all traces together, at most this number.
        filter: an expression as of `--filter`: `prev_prio < 100 && comm ~ "kworker/*"`.
        ordered: merge all streams by time. Without it, one stream comes after the other, which is
            faster.
        columns: the names of columns of the table `events`; what is not wanted is not computed.
        limit: the greatest number of rows; nothing is read after them.
        strict: damage ends the stream with an error.

        Raises `ArgumentError`, or `ReadError` if a description does not decode its events.
        """
        chosen = [names] if isinstance(names, str) else list(names)
        scan = self._scan(
            chosen, None, cpus, since, until, last, filter, ordered, columns, limit, strict
        )
        return Events(scan)

    def table(
        self,
        name: str,
        *,
        cpus: Sequence[int] = (),
        since: Moment | None = None,
        until: Moment | None = None,
        last: int | None = None,
        filter: str | None = None,
        ordered: bool = True,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        strict: bool = False,
    ) -> Table:
        """Select the occurrences of one event, with its fields as columns.

        name: `sched_switch` or `sched:sched_switch`. The other arguments are those of `events`.
        Raises `UnknownEventError` if no trace describes such an event.
        """
        scan = self._scan(
            [], name, cpus, since, until, last, filter, ordered, columns, limit, strict
        )
        return Table(scan)

    def to_parquet(self, path: Path) -> int:
        """Write all events, and return their number.

        If `path` is a folder or ends with `/`, it is a data set: all tables of each crash are
        added, as by `lastwords ingest`. Else it is a file with the table `events`.
        Raises `WriteError`.
        """
        if os.path.isdir(path) or os.fspath(path).endswith("/"):
            _, events = self._native.add_to(path)
            return events
        return self.events().to_parquet(path)

    def _scan(
        self,
        events: list[str],
        view: str | None,
        cpus: Sequence[int],
        since: Moment | None,
        until: Moment | None,
        last: int | None,
        filter: str | None,
        ordered: bool,
        columns: Sequence[str] | None,
        limit: int | None,
        strict: bool,
    ) -> _native.Scan:
        return self._native.scan(
            events=events,
            view=view,
            cpus=list(cpus),
            since=self._nanoseconds(since),
            until=self._nanoseconds(until),
            last=last,
            filter=filter,
            ordered=ordered,
            columns=None if columns is None else list(columns),
            limit=limit,
            strict=strict,
        )

    def _nanoseconds(self, moment: Moment | None) -> int | None:
        match moment:
            case timedelta():
                newest = self._native.newest()
                if newest is None:
                    raise ArgumentError("no event has a time that is related to real time")
                return newest - abs(moment) // timedelta(microseconds=1) * 1000
            case datetime():
                if moment.tzinfo is None:
                    raise ArgumentError(f"{moment}: give a time with its time zone")
                return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
            case _:
                return moment

    def __repr__(self) -> str:
        return f"<lastwords.Recording {', '.join(self._native.trace_names())}>"


def open(
    *paths: Path,
    names: Sequence[str] = (),
    metadata: Path | None = None,
    bundle: Sequence[Path] = (),
    redact: Sequence[str] = (),
    redact_hash: Sequence[str] = (),
) -> Recording:
    """Open files and folders, and find every trace in them.

    paths: a session's folder, a process core, a kernel's dump, a trace.dat file, a folder of CTF,
        LTTng's shared memory, or folders with any of these. Several are read as one, merged by time.
    names: globs for the names of sessions and instances (`top` is a kernel's top level).
    metadata: the description of the events of LTTng's user-space streams.
    bundle: descriptions of the events of a persistent ring buffer of ftrace.

    redact: globs `FIELD` or `EVENT/FIELD` for fields whose values are hidden in all that is read.
    redact_hash: the same, but equal values stay equal.

    An input that cannot be opened is in `Recording.failures` if another one can.
    Raises `OpenError` if nothing can be opened.
    """
    if not paths:
        raise ArgumentError("name at least one file or folder")
    native = _native.open(
        list(paths), list(names), metadata, list(bundle), list(redact), list(redact_hash)
    )
    recording = Recording(native)
    failures = recording.failures
    if native.is_empty():
        first = (
            failures[0].why if failures else f"{os.fspath(paths[0])}: nothing to recover is there"
        )
        raise OpenError(first, failures)
    return recording


def _dated(row: dict[str, Any]) -> dict[str, Any]:
    """Makes a `datetime` of the microseconds in `time`; None if a `datetime` cannot hold them."""
    time = row.get("time")
    if time is not None:
        try:
            row["time"] = _EPOCH + timedelta(microseconds=time)
        except OverflowError:
            row["time"] = None
    return row


def _made(kind: type[_T], row: dict[str, Any]) -> _T:
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in row.items() if name in known})
