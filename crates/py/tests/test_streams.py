"""Streams are independent, end early, take little memory, and an interrupt ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import lastwords
import polars
import pyarrow
import pytest
from made import ORIGIN, Made


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of 2 million events."""
    made = Made(tmp_path_factory.mktemp("large") / "trace", packet_events=1000)
    for i in range(10_000):
        made.add(i, 0, 1, "axxb", n=i)
    folder = made.write()
    with open(folder / "stream_0", "rb") as file:
        data = file.read()
    with open(folder / "stream_0", "wb") as file:
        for _ in range(200):
            file.write(data)
    return folder


def scans() -> int:
    """The number of threads of this process that scan."""
    names = Path("/proc/self/task").glob("*/comm")
    return sum(name.read_text().strip() == "lastwords-scan" for name in names)


def no_scan_is_left() -> bool:
    while scans():
        time.sleep(0.01)
    return True


def test_two_streams_at_once(made: Made) -> None:
    recording = lastwords.open(made.folder)
    events, axxb = recording.events(), recording.table("axxb")
    both = zip(iter(events), iter(events), strict=True)
    assert all(one == other for one, other in both)
    readers = [pyarrow.RecordBatchReader.from_stream(events) for _ in range(8)]
    assert {reader.read_all().num_rows for reader in reversed(readers)} == {len(made.rows)}
    joined = duckdb.sql("SELECT count(*) FROM events JOIN axxb USING (ts) JOIN events b USING (ts)")
    assert joined.fetchall() == [(sum(row[3] == "axxb" for row in made.rows),)]


def test_each_reading_is_a_new_scan(made: Made) -> None:
    events = lastwords.open(made.folder).events(columns=["ts"])
    first = [row[0] + ORIGIN for row in made.rows]
    for _ in range(3):
        assert polars.DataFrame(events)["ts"].to_list() == first
        assert duckdb.sql("SELECT ts FROM events").fetchall() == [(at,) for at in first]


def test_a_reader_that_stops_ends_the_scan(large: Path) -> None:
    recording = lastwords.open(large)
    events = recording.events(ordered=False)
    assert next(iter(events))["ts"] == ORIGIN
    assert no_scan_is_left()
    assert duckdb.sql("SELECT ts FROM events LIMIT 3").fetchall() == [
        (ORIGIN + i,) for i in range(3)
    ]
    assert no_scan_is_left()
    # A scan that finds nothing for a long time ends, too.
    reader = pyarrow.RecordBatchReader.from_stream(recording.events(filter="n == 4294967295"))
    del reader
    assert no_scan_is_left()
    assert next(iter(recording.events(limit=1)))["ts"] == ORIGIN


def test_many_rows_take_little_memory(large: Path) -> None:
    program = """
import resource, sys, lastwords, pyarrow
events = lastwords.open(sys.argv[1]).events(ordered=False)
def count(limit):
    return sum(batch.num_rows for batch in pyarrow.RecordBatchReader.from_stream(events))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(count(None), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, large], check=True, capture_output=True, text=True
    )
    rows, kilobytes = map(int, ran.stdout.split())
    assert rows == 2_000_000
    # All rows would take more than 600 MB.
    assert kilobytes < 150_000


@pytest.mark.parametrize(
    "read",
    [
        "for row in recording.events(filter='n == 4294967295'): pass",
        "pyarrow.table(recording.events(filter='n == 4294967295'))",
        "sum(1 for row in recording.events())",
    ],
)
def test_an_interrupt_ends_a_long_scan(large: Path, read: str) -> None:
    program = f"""
import signal, sys, lastwords, pyarrow
signal.signal(signal.SIGINT, signal.default_int_handler)
recording = lastwords.open(sys.argv[1])
print("ready", flush=True)
try:
    try:
        while True:
            {read}
    except pyarrow.ArrowInvalid as error:
        # PyArrow tells it as an error of the stream; the interrupt comes right after that.
        assert "KeyboardInterrupt" in str(error), error
        while True:
            pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program, large], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    rest = child.stdout.read()
    assert (child.wait(), rest) == (0, "interrupted\n")


def test_other_threads_run_while_events_are_read(large: Path) -> None:
    import threading

    turns = 0
    is_over = threading.Event()

    def turn() -> None:
        nonlocal turns
        while not is_over.wait(0.001):
            turns += 1

    thread = threading.Thread(target=turn)
    thread.start()
    with pytest.raises(StopIteration):
        next(iter(lastwords.open(large).events(filter="n == 4294967295")))
    is_over.set()
    thread.join()
    assert turns > 5


def test_a_child_process_reads_after_a_fork(made: Made) -> None:
    recording = lastwords.open(made.folder)
    list(recording.events(limit=1))
    pid = os.fork()
    if pid == 0:
        count = sum(1 for _ in recording.events())
        os._exit(0 if count == len(made.rows) else 1)
    assert os.waitpid(pid, 0)[1] == 0
