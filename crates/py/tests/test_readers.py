"""Every reader of Arrow gets what the program writes as JSON lines."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import lastwords
import pandas
import polars
import pyarrow
import pytest
from made import ORIGIN, Made

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# In the order of the table.
COLUMNS = ["channel", "ts", "cpu", "provider", "name", "fields"]


def nanoseconds(text: str) -> int:
    """Nanoseconds since the epoch of `2026-11-21T07:02:57.042981086Z`."""
    whole, _, part = text.removesuffix("Z").partition(".")
    seconds = datetime.fromisoformat(whole + "+00:00") - EPOCH
    return (seconds.days * 86400 + seconds.seconds) * 10**9 + int(part.ljust(9, "0") or 0)


def same(value: Any) -> Any:
    """A value as JSON lines have it: a text that is not UTF-8 has lost its bytes there."""
    match value:
        case {"bytes": str(digits), **rest} if not rest:
            return bytes.fromhex(digits).decode("utf-8", "replace")
        case dict():
            return {name: same(one) for name, one in value.items()}
        case list():
            return [same(one) for one in value]
        case _:
            return value


def rows_of_program(program: str, source: Path, into: Path) -> list[tuple[Any, ...]]:
    """The events that the program writes."""
    subprocess.run(
        [program, "convert", source, "--to", "json", "-o", into, "--force"],
        check=True,
        capture_output=True,
    )
    rows = []
    for line in into.read_text().splitlines()[1:]:
        event = json.loads(line)
        if "event" not in event:
            continue
        rows.append(
            (
                nanoseconds(event["time"]),
                event.get("cpu"),
                event["channel"],
                event["event"],
                event.get("fields", {}),
            )
        )
    return rows


def told(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows of Arrow as `rows_of_program` has them."""
    return [
        (ts, cpu, channel, f"{provider}:{name}" if provider else name, same(json.loads(fields)))
        for channel, ts, cpu, provider, name, fields in rows
    ]


def by_pyarrow(events: lastwords.Events) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in COLUMNS) for row in pyarrow.table(events).to_pylist()]


def by_polars(events: lastwords.Events) -> list[tuple[Any, ...]]:
    return polars.DataFrame(events).rows()


def by_pandas(events: lastwords.Events) -> list[tuple[Any, ...]]:
    frame = pandas.DataFrame.from_arrow(events)
    frame = frame.astype(object).where(frame.notna(), None)
    return [tuple(row) for row in frame.itertuples(index=False)]


def by_duckdb(events: lastwords.Events) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"SELECT {', '.join(COLUMNS)} FROM events").fetchall()


def by_iteration(events: lastwords.Events) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in COLUMNS) for row in events]


READERS = [by_pyarrow, by_polars, by_pandas, by_duckdb, by_iteration]


def test_all_readers_equal_the_program(program: str, source: Path, tmp_path: Path) -> None:
    truth = rows_of_program(program, source, tmp_path / "truth.json")
    assert truth
    recording = lastwords.open(source)
    for read in READERS:
        found = told(read(recording.events(columns=COLUMNS)))
        assert len(found) == len(truth), read.__name__
        # Events of one time have no order between streams.
        key = lambda row: (row[0], repr(row[1:]))  # noqa: E731
        assert sorted(found, key=key) == sorted(truth, key=key), read.__name__
        assert [row[0] for row in found] == sorted(row[0] for row in truth), read.__name__


def test_a_made_trace_comes_back_value_for_value(made: Made) -> None:
    rows = list(lastwords.open(made.folder).events())
    assert [row["ts"] for row in rows] == [ORIGIN + at for at, *_ in made.rows]
    for row, (at, cpu, tid, name, _) in zip(rows, made.rows, strict=True):
        assert (row["cpu"], row["tid"], row["name"]) == (cpu, tid, name)
        assert row["time"] == datetime.fromtimestamp((ORIGIN + at) // 1000 / 10**6, UTC)


def test_parquet_has_the_same_rows(made: Made, tmp_path: Path) -> None:
    events = lastwords.open(made.folder).events(columns=COLUMNS)
    file = tmp_path / "events.parquet"
    assert events.to_parquet(file) == len(made.rows)
    assert duckdb.sql(f"SELECT * FROM '{file}'").fetchall() == by_pyarrow(events)
    assert [path.name for path in tmp_path.iterdir()] == ["events.parquet"]
    with pytest.raises(lastwords.WriteError) as error:
        events.to_parquet(tmp_path / "no" / "events.parquet")
    assert "no/events.parquet" in (error.value.path or "")


def test_a_data_set_equals_that_of_the_program(program: str, made: Made, tmp_path: Path) -> None:
    mine, its = tmp_path / "mine", tmp_path / "its"
    lastwords.open(made.folder).to_parquet(f"{mine}/")
    subprocess.run([program, "ingest", made.folder, "--into", its], check=True, capture_output=True)
    for table in ("events", "losses", "traces", "crashes"):
        read = [f"SELECT * FROM '{own}/v1/{table}/*/*.parquet' ORDER BY ALL" for own in (mine, its)]
        assert duckdb.sql(read[0]).fetchall() == duckdb.sql(read[1]).fetchall(), table
