"""Counts the events of a name with a small field in a trace of CTF: by lastwords, by DuckDB on what
lastwords writes, and by babeltrace2 and awk. All counts are equal. It knows no code of lastwords.

With the interpreter of an environment that has the wheel, DuckDB also reads the trace through it.
"""

import os
import resource
import subprocess
import sys
import time

import duckdb
import pyarrow as pa

LASTWORDS = os.environ.get("LASTWORDS", "lastwords")
# The event, its field, and the number that the field is below.
EVENT, FIELD, BELOW = "sched_switch", "next_tid", 150
FILTER = f'event == "{EVENT}" && {FIELD} < {BELOW}'
WHERE = f"name = '{EVENT}' AND f_{FIELD} < {BELOW}"
BY_WHEEL = f"""
import sys
from lastwords.sql import Database
statement = "SELECT count(*) FROM {EVENT} WHERE {FIELD} < {BELOW}"
print(next(Database([sys.argv[1]]).query(statement).rows())[0])
"""


def output(*commands):
    """The output of a pipeline, each of whose commands succeeds."""
    running = []
    for command in commands:
        before = running[-1].stdout if running else None
        running.append(subprocess.Popen(command, stdin=before, stdout=subprocess.PIPE))
        if before is not None:
            before.close()
    text = running[-1].stdout.read()
    for command, process in zip(commands, running):
        assert process.wait() == 0, f"{command}: status {process.returncode}"
    return text


def counted(connection, rows):
    return connection.execute(f"SELECT count(*) {rows}").fetchone()[0]


def streamed(trace, *more, where="true"):
    """Counts rows of a stream of Arrow."""
    command = [LASTWORDS, "convert", trace, "--to", "arrow", "-o", "-", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    connection = duckdb.connect()
    connection.register("stream", pa.ipc.open_stream(process.stdout))
    count = counted(connection, f"FROM stream WHERE {where}")
    assert process.wait() == 0, f"{command}: status {process.returncode}"
    return count


def report(trace):
    return int(output([LASTWORDS, "report", trace, "--filter", FILTER], ["wc", "-l"]))


def babeltrace(trace):
    small = f'match($0, /{FIELD} = [0-9]+/) && substr($0, RSTART + {len(FIELD) + 3}, RLENGTH) + 0 < {BELOW} {{ n++ }}'
    return int(output(["babeltrace2", trace], ["awk", f"/ {EVENT}: / && " + small + " END { print n + 0 }"]))


def written(trace, file):
    """Writes the file of Parquet that is counted next."""
    output([LASTWORDS, "convert", trace, "-o", file])


def main():
    trace, events, file, *wheel = sys.argv[1:]
    ways = {
        "report --filter": lambda: report(trace),
        "Arrow, DuckDB filters": lambda: streamed(trace, where=WHERE),
        "Arrow, convert --filter": lambda: streamed(trace, "--filter", FILTER),
        "babeltrace2 and awk": lambda: babeltrace(trace),
        "written as Parquet": lambda: written(trace, file),
        "Parquet, DuckDB": lambda: counted(duckdb.connect(), f"FROM '{file}' WHERE {WHERE}"),
    }
    if wheel:
        ways["the wheel, DuckDB"] = lambda: int(output([wheel[0], "-c", BY_WHEEL, trace]))
    counts = {}
    print(f"{int(events):,} events of CTF, {FILTER}:")
    for name, run in ways.items():
        before, begun = cpu(), time.monotonic()
        found = run()
        seconds, used = time.monotonic() - begun, cpu() - before
        if found is not None:
            counts[name] = found
        shown = "" if found is None else f"{found:,}"
        print(f"  {name:<24} {shown:>12} {seconds:>7.2f} s {used:>7.2f} s of CPUs", flush=True)
    assert len(set(counts.values())) == 1 and counts["report --filter"] > 0, counts


def cpu():
    """CPU seconds of this process and of those that have ended."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(own.ru_utime + own.ru_stime for own in times)


main()
