"""The last events of programs and kernels that died, as columns of Arrow.

`open` reads whatever the command `lastwords` reads: a session, a process core, a kernel's dump, a
trace.dat file, a folder of CTF, LTTng's shared memory, or a folder with any of these::

    import duckdb, lastwords

    crash = lastwords.open("vmcore")
    print(crash.crash.why)
    switches = crash.table("sched_switch")
    print(duckdb.sql("SELECT next_comm, count(*) FROM switches GROUP BY ALL ORDER BY 2 DESC"))

`Events` and `Table` objects speak the Arrow PyCapsule interface: DuckDB, Polars, pandas, PyArrow
and others read them without a copy, and each reading is a new scan. None of these packages is
needed: rows are also dictionaries (`for row in crash.events(last=10)`).

Units: `ts` is nanoseconds since the epoch, or of the trace's clock if nothing relates that to real
time (then `time` is null). `time` is in microseconds, UTC. All other `*_ns` are nanoseconds.
"""

from ._errors import (
    ArgumentError,
    Error,
    OpenError,
    ReadError,
    UnknownEventError,
    WriteError,
)
from ._native import TABLES_VERSION
from ._native import VERSION as __version__
from ._recording import Crash, Events, Failure, Loss, Recording, Table, Trace, open

__all__ = [
    "ArgumentError",
    "Crash",
    "Error",
    "Events",
    "Failure",
    "Loss",
    "OpenError",
    "ReadError",
    "Recording",
    "TABLES_VERSION",
    "Table",
    "Trace",
    "UnknownEventError",
    "WriteError",
    "__version__",
    "open",
]
