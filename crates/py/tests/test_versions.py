"""Data sets that other versions wrote: columns are found by their names, and a newer version is
refused. DuckDB has read the stored rows from the stored data set when it was made."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import lastwords
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lastwords.sql import MADE_OF_EVENTS, TABLES, Database, questions

STORED = Path(__file__).resolve().parents[2] / "cli/tests/stored-0.1"


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    """The data set of version 0.1."""
    archive = STORED / "data-set.tar.zst"
    subprocess.run(["tar", "--zstd", "-xf", archive, "-C", tmp_path], check=True)
    return tmp_path


def rows(database: Database, table: str) -> list[dict[str, Any]]:
    """The rows of a table, without nulls. Times are microseconds."""
    names = database.query(f"FROM {table} LIMIT 0").columns
    shown = [f"epoch_us({n}) AS {n}" if n in ("time", "start_time") else n for n in names]
    result = database.query(f"SELECT {', '.join(shown)} FROM {table}")
    found = [dict(zip(result.columns, row, strict=True)) for row in result.rows()]
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def ordered(found: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in found)


def test_a_stored_data_set_has_the_rows_that_it_had(data_set: Path) -> None:
    command = ["zstd", "-dc", STORED / "data-set.jsonl.zst"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    truth: dict[str, list[dict[str, Any]]] = {table: [] for table in (*TABLES, *MADE_OF_EVENTS)}
    for line in text.splitlines():
        row = json.loads(line)
        truth[row.pop("table")].append(row)
    assert len(truth["events"]) == 894 and len(truth["crashes"]) == 2
    database = Database([data_set])
    for table, expected in truth.items():
        found = rows(database, table)
        assert {str(row.pop("day")) for row in found} <= {"2026-11-27"}
        assert ordered(found) == ordered(expected), table
    for name in questions():
        list(database.query(f"FROM {name}").rows())
    database.close()


def changed(data_set: Path, table: str, without: str, new: str) -> None:
    """Take a column out of the parts of a table, and put a new one in front."""
    for part in (data_set / "v1" / table).glob("*/*.parquet"):
        old = pq.read_table(part, partitioning=None).drop_columns([without])
        pq.write_table(old.add_column(0, new, pa.array([7] * len(old))), part)


def test_a_missing_column_is_null_and_a_new_one_is_there(data_set: Path) -> None:
    whole = Database([data_set])
    before = rows(whole, "events")
    whole.close()
    changed(data_set, "events", "f_id", "new")
    changed(data_set, "crashes", "signature", "new")
    changed(data_set, "slice", "time", "new")
    database = Database([data_set])
    for row in before:
        row.pop("f_id", None)
    assert ordered(rows(database, "events")) == ordered([row | {"new": 7} for row in before])
    statement = "SELECT count(f_id), count(signature), count(slice.time), sum(crashes.new) FROM "
    joined = "events, crashes, slice WHERE false"
    assert list(database.query(statement + joined).rows()) == [(0, 0, 0, None)]
    assert [row["new"] for row in rows(database, "crashes")] == [7, 7]
    for name in questions():
        list(database.query(f"FROM {name}").rows())
    database.close()


def test_parts_of_two_versions_are_one_table(data_set: Path, sessions: Path) -> None:
    changed(data_set, "crashes", "signature", "new")
    # One of the two crashes is added again by this version.
    lastwords.open(sessions / "shop").to_parquet(f"{data_set}/")
    database = Database([data_set])
    found = list(database.query("SELECT name, new FROM crashes ORDER BY name").rows())
    assert found == [("server", 7), ("shop", None)]
    database.close()


@pytest.mark.parametrize("is_beside", [False, True])
def test_a_newer_data_set_is_refused(data_set: Path, sessions: Path, is_beside: bool) -> None:
    if is_beside:
        (data_set / "v2/crashes").mkdir(parents=True)
    else:
        (data_set / "v1").rename(data_set / "v2")
    with pytest.raises(lastwords.ArgumentError, match="a data set of version 2: .* version 1"):
        Database([data_set])
    with pytest.raises(lastwords.Error, match="version 2"):
        lastwords.open(sessions / "shop").to_parquet(f"{data_set}/")
    assert (data_set / "v1").exists() == is_beside
