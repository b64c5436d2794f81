"""SQL over inputs and data sets, with DuckDB.

`Database` has the tables `events`, `crashes`, `losses` and `traces` of docs/TABLES.md, of a data set
also those that are made of events (`slice`, `sched`, `thread`, `process`, `log`), a view for each event with its fields as columns (`sched_switch`), and a view for each question of
`lastwords.questions`. A statement reads the inputs, and nothing else: no other file is read, none
is written, no extension is loaded, and the configuration is locked.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

try:
    import duckdb
except ImportError as error:
    if isinstance(error, ModuleNotFoundError):
        raise ImportError("DuckDB is not installed: pip install duckdb") from error
    # In a minimal Debian, libstdc++6 is missing.
    raise ImportError(f"DuckDB cannot be loaded: {error}") from error

import lastwords
from lastwords._errors import ArgumentError, Error
from lastwords._native import TABLES_VERSION, table_columns
from lastwords.questions import MADE_OF_EVENTS, TABLES, questions

from ._fields import typed_view

# The files of a table.
_PARTS = "day=*/part-*.parquet"

_ALLOWED = {"SELECT", "CREATE", "DROP", "INSERT", "UPDATE", "DELETE", "MULTI"}
_MISSING = re.compile(r"Table with name (.*) does not exist!", re.DOTALL)
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?", re.IGNORECASE)
# DuckDB shows times of the zone UTC in the zone of the session. These are UTC without a zone.
_IN_UTC = "* REPLACE (make_timestamp(epoch_us(time)) AS time)"


class SqlError(Error):
    """A statement that is refused, fails, or takes too long."""


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


class Database:
    """Inputs or data sets as tables.

    inputs: paths that `lastwords.open` takes, or data sets of `lastwords ingest`, not both.
    memory: the most that DuckDB may take, such as `1GB`. Nothing is spilled to the disk.
    timeout: seconds that a statement may take; None for no limit.
    output: a file that `write_parquet` may write.
    redact, redact_hash: fields of inputs whose values are hidden, as `lastwords.open` has them.
    """

    def __init__(
        self,
        inputs: Sequence[str | Path],
        *,
        memory: str = "1GB",
        timeout: float | None = None,
        output: str | Path | None = None,
        redact: Sequence[str] = (),
        redact_hash: Sequence[str] = (),
    ) -> None:
        if not inputs:
            raise ArgumentError("name at least one input or data set")
        self.timeout = timeout
        paths = [Path(path) for path in inputs]
        for path in paths:
            _refuse_newer(path)
        sets = [path for path in paths if is_data_set(path)]
        if sets and len(sets) < len(paths):
            raise ArgumentError("inputs and data sets cannot be read together: ingest the inputs")
        if sets and (redact or redact_hash):
            raise ArgumentError("a data set is as it is: hide values when crashes are ingested")
        self.recording = (
            None if sets else lastwords.open(*paths, redact=redact, redact_hash=redact_hash)
        )
        # The names of views that were looked for.
        self._added: set[str] = set()
        self._questions = questions()
        self._in_use = threading.Lock()
        try:
            self.connection = _connected(memory, sets, output)
        except duckdb.Error as error:
            raise ArgumentError(str(error)) from None
        if self.recording is None:
            self._add_sets(sets)
        else:
            self._add_recording(self.recording)
        self.connection.execute("SET lock_configuration = true")

    def _add_sets(self, sets: Sequence[Path]) -> None:
        for table in (*TABLES, *MADE_OF_EVENTS):
            folders = [path.resolve() / f"v{TABLES_VERSION}" / table for path in sets]
            if table in MADE_OF_EVENTS:
                folders = [folder for folder in folders if any(folder.glob(_PARTS))]
                if not folders:
                    continue
            files = ", ".join(literal(str(folder / _PARTS)) for folder in folders)
            rows = f"read_parquet([{files}], hive_partitioning = true, union_by_name = true)"
            names = self.connection.sql(f"FROM {rows} LIMIT 0").columns
            columns = ", ".join(_columns(table, names))
            self.connection.execute(f"CREATE VIEW {table} AS SELECT {columns} FROM {rows}")

    def _add_recording(self, recording: lastwords.Recording) -> None:
        self._add_view("events", recording.events(ordered=False))
        # The others are small.
        for table, columns, rows in (
            ("crashes", _CRASHES, recording._native.crashes()),
            ("losses", _LOSSES, recording._native.losses()),
            ("traces", _TRACES, recording._native.traces()),
        ):
            self.connection.execute(f"CREATE TABLE {table} ({columns})")
            names = [column.split()[0] for column in columns.split(", ")]
            for row in rows:
                values = [_moment(name, row[name]) for name in names]
                marks = ", ".join("make_timestamp(?)" if name == "time" else "?" for name in names)
                self.connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)

    def _add_view(self, name: str, events: lastwords.Events) -> None:
        self.connection.register(f"scan {name}", events)
        columns = _IN_UTC if "time" in events.columns else "*"
        self.connection.execute(
            f"CREATE VIEW {quoted(name)} AS SELECT {columns} FROM {quoted('scan ' + name)}"
        )

    def event_names(self) -> list[str]:
        """Return the names of all events, without providers."""
        if self.recording is not None:
            return self.recording.event_names
        rows = self.connection.execute("SELECT DISTINCT name FROM events ORDER BY name").fetchall()
        return [name for (name,) in rows if name is not None]

    def statements(self, text: str) -> list[duckdb.Statement]:
        """Take a text apart, and refuse what does more than read.

        Raises `SqlError`.
        """
        try:
            found = self.connection.extract_statements(text)
        except duckdb.Error as error:
            raise SqlError(str(error)) from None
        for statement in found:
            self._check(statement)
        return found

    def _check(self, statement: duckdb.Statement) -> None:
        kind = statement.type.name.removeprefix("STATEMENT_")
        if kind == "EXPLAIN":
            # EXPLAIN ANALYZE runs its statement.
            rest = _EXPLAIN.sub("", statement.query, count=1)
            inner = self.connection.extract_statements(rest)
            kind = (
                inner[0].type.name if len(inner) == 1 and inner[0].type.name == "SELECT" else kind
            )
        if kind not in _ALLOWED:
            raise SqlError(f"{kind} is refused: statements read the inputs, and write nothing")

    def query(self, statement: duckdb.Statement | str) -> Result:
        """Run one statement, and return its rows.

        Raises `SqlError`.
        """
        if isinstance(statement, str):
            match self.statements(statement):
                case [statement]:
                    pass
                case several:
                    raise SqlError(f"{len(several)} statements: give one")
        # One connection runs one statement at a time.
        with self._in_use, self._limited():
            self._run(lambda: self.connection.execute(statement))
            has_rows = statement.type.name in ("SELECT", "EXPLAIN", "MULTI")
            description = (self.connection.description or []) if has_rows else []
            columns = [str(column[0]) for column in description]
            return Result(self, columns, [str(column[1]) for column in description])

    def write_parquet(self, statement: duckdb.Statement, path: str | Path) -> None:
        """Write the rows of a SELECT into the file that was named as the output.

        Raises `SqlError`.
        """
        with self._in_use, self._limited():
            if statement.type.name != "SELECT":
                raise SqlError("only a SELECT has rows for Parquet")
            rows = self._run(lambda: self.connection.sql(statement.query))
            rows.write_parquet(str(path), compression="zstd")

    def _limited(self) -> _Limit:
        return _Limit(self.connection, self.timeout)

    def _run(self, run: Callable[[], Any]) -> Any:
        """Run what binds a statement, and add the views that it lacks: of events and questions."""
        while True:
            try:
                return run()
            except duckdb.CatalogException as error:
                name = _MISSING.search(str(error))
                if name is None or name[1] in self._added or not self._add(name[1]):
                    raise

    def _add(self, name: str) -> bool:
        """Add the view of a name. Returns False if neither an event nor a question has it."""
        self._added.add(name)
        select = self._questions.get(name)
        if select is None and self.recording is not None:
            try:
                self._add_view(name, self.recording.table(name, ordered=False))
            except lastwords.UnknownEventError:
                return False
            return True
        if select is None:
            select = typed_view(self.connection, name, quoted, literal)
        if select is None:
            return False
        create = f"CREATE VIEW {quoted(name)} AS {select}"
        self._run(lambda: self.connection.execute(create))
        return True

    def close(self) -> None:
        """Close the database. The inputs stay as they were."""
        self.connection.close()


class Result:
    """The rows of a statement. `columns` and `types` have the names and types of its columns."""

    def __init__(self, database: Database, columns: list[str], types: list[str]) -> None:
        self._database = database
        self.columns = columns
        self.types = types

    def rows(self, most: int | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the rows, at most this number."""
        left = most
        while left is None or left > 0:
            some = 1024 if left is None else min(left, 1024)
            with self._database._in_use, self._database._limited():
                rows = self._database.connection.fetchmany(some)
            if not rows:
                return
            left = None if left is None else left - len(rows)
            yield from rows


class _Limit:
    """Interrupts a connection after a time, and makes an `SqlError` of its errors."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, seconds: float | None) -> None:
        self.connection = connection
        self.is_handling = False
        self.seconds = seconds
        self.is_over = False
        self.timer = None if seconds is None else threading.Timer(seconds, self._stop)

    def _stop(self) -> None:
        self.is_over = True
        self.connection.interrupt()

    def _interrupt(self, number: int, frame: Any) -> None:
        # DuckDB notices the exception, and then waits for its threads, which notice this alone.
        self.connection.interrupt()
        raise KeyboardInterrupt

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
            self.is_handling = True
        if self.timer is not None:
            self.timer.daemon = True
            self.timer.start()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.is_handling:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.timer is not None:
            self.timer.cancel()
        if self.is_over and error is not None:
            raise SqlError(f"stopped after {self.seconds:g} s (--timeout)") from None
        if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
            # Ctrl-C, as DuckDB tells of it.
            raise KeyboardInterrupt from None
        if isinstance(error, duckdb.OutOfMemoryException):
            raise SqlError(f"{error}\nmore memory: --memory") from None
        if isinstance(error, duckdb.Error):
            raise SqlError(str(error)) from None


def is_data_set(path: Path) -> bool:
    """Return True if `lastwords ingest` has made the folder."""
    return (path / f"v{TABLES_VERSION}" / "crashes").is_dir()


def _refuse_newer(path: Path) -> None:
    """Raise `ArgumentError` for a data set that a newer version has made, or added crashes to."""
    for folder in path.glob("v*/crashes"):
        version = folder.parent.name[1:]
        if version.isdecimal() and int(version) > TABLES_VERSION:
            raise ArgumentError(
                f"{path}: a data set of version {version}: this lastwords reads version "
                f"{TABLES_VERSION}; read it with a newer lastwords"
            )


def _columns(table: str, names: Sequence[str]) -> Iterator[str]:
    """Select the columns of a table of data sets that has these names.

    A column that the program that wrote the data set did not know is null. One that this program
    does not know comes last.
    """
    ours = table_columns(table) or []
    for name, kind in ours:
        if name not in names:
            yield f"NULL::{kind} AS {name}"
        elif kind == "TIMESTAMP":
            yield f"make_timestamp(epoch_us({name})) AS {name}"
        else:
            yield name
    known = {name for name, _ in ours}
    yield from (quoted(name) for name in names if name not in known)


def _connected(
    memory: str, sets: Sequence[Path], output: str | Path | None
) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        config={
            "memory_limit": memory,
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_persistent_secrets": "false",
            "python_enable_replacements": "false",
        }
    )
    # It would be between rows.
    connection.execute("SET enable_progress_bar = false")
    folders = ", ".join(literal(f"{path.resolve()}/v{TABLES_VERSION}/") for path in sets)
    connection.execute(f"SET allowed_directories = [{folders}]")
    if output is not None:
        # DuckDB writes Parquet under another name first.
        path = Path(output).resolve()
        files = ", ".join(literal(str(own)) for own in (path, path.with_name(f"tmp_{path.name}")))
        connection.execute(f"SET allowed_paths = [{files}]")
    connection.execute("SET enable_external_access = false")
    return connection


def _moment(name: str, value: Any) -> Any:
    # DuckDB has times of 64 bits; the largest are infinities.
    return None if name == "time" and value is not None and abs(value) >= 2**63 - 1 else value


_CRASHES = (
    "crash_id VARCHAR, ts BIGINT, time TIMESTAMP, is_last_seen BOOLEAN, host VARCHAR, kind VARCHAR, "
    "name VARCHAR, program VARCHAR, release VARCHAR, arch VARCHAR, hardware VARCHAR, bios VARCHAR, "
    "boot_id VARCHAR, cause VARCHAR, signal INTEGER, exit_status INTEGER, why VARCHAR, panic VARCHAR, "
    "signature VARCHAR, stack VARCHAR, crash_cpu INTEGER, uptime_ns BIGINT, how_ended VARCHAR, "
    "has_losses BOOLEAN, lost_events BIGINT, path VARCHAR, reader_version VARCHAR"
)
_LOSSES = (
    "crash_id VARCHAR, trace VARCHAR, channel VARCHAR, cpu INTEGER, cause VARCHAR, place VARCHAR, "
    "is_loss BOOLEAN, events BIGINT, bytes BIGINT"
)
_TRACES = (
    "crash_id VARCHAR, trace VARCHAR, kind VARCHAR, clock VARCHAR, is_dated BOOLEAN, "
    "newest_ts BIGINT, streams BIGINT, has_losses BOOLEAN, lost_events BIGINT, path VARCHAR"
)
