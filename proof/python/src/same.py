"""One run of `lastwords ingest`, and the comparison of two data sets."""

import subprocess
from pathlib import Path

import duckdb
from lastwords.questions import MADE_OF_EVENTS, TABLES


def ingest(program, into, *inputs):
    """One run of the program, without Spark."""
    ran = subprocess.run([program, "ingest", *inputs, "--into", into], capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1) and ran.stdout, ran.stderr
    return ran.stdout


def check_same(one, other):
    """Two data sets have the same files and rows, and no file of a writer is left. Of a crash that is
    there in two inputs, either may be the one that was read last: `path` differs."""
    connection = duckdb.connect()
    for table in (*TABLES, *MADE_OF_EVENTS):
        files = [sorted(str(path.relative_to(own)) for path in Path(own).glob(f"v1/{table}/*/*")) for own in (one, other)]
        assert files[0] == files[1], f"{table}: {set(files[0]) ^ set(files[1])}"
        views = [f"(SELECT COLUMNS(lambda name: name <> 'path') FROM read_parquet('{own}/v1/{table}/*/*.parquet'))" for own in (one, other)]
        for left, right in (views, reversed(views)):
            (count,) = connection.execute(f"SELECT count(*) FROM ({left} EXCEPT ALL {right})").fetchone()
            assert count == 0, f"{table}: {count} rows of one data set are not in the other"
    left = [path for own in (one, other) for path in Path(own, "v1").rglob(".*")]
    assert not left, f"left: {left}"
