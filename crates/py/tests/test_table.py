"""The typed view of an event has its fields as columns, with their values."""

from __future__ import annotations

import json
import math
from pathlib import Path

import duckdb
import lastwords
import pyarrow
import pytest
from made import GLOB, HOSTILE, ORDER, ORIGIN, Made


def test_values_have_their_types(made: Made) -> None:
    table = lastwords.open(made.folder).table("values")
    types = table.columns
    assert {
        name: types[name]
        for name in ("small", "big", "low", "real", "word", "state", "state_label", "three")
    } == {
        "small": "Int64",
        "big": "UInt64",
        "low": "Int64",
        "real": "Float64",
        "word": "Utf8",
        "state": "Int64",
        "state_label": "Utf8",
        "three": "Utf8",
    }
    rows = pyarrow.table(table).to_pylist()
    truth = [(at, tid, fields) for at, _, tid, name, fields in made.rows if name == "values"]
    labels = {1: "open", 2: "shut down"}
    bad = 0
    for row, (at, tid, fields) in zip(rows, truth, strict=True):
        assert row["ts"] == ORIGIN + at
        for name in ("small", "minus", "big", "low", "state"):
            assert row[name] == fields[name], name
        assert (
            row["real"] == fields["real"] or math.isnan(row["real"]) and math.isnan(fields["real"])
        )
        word = fields["word"]
        bad += isinstance(word, bytes)
        assert row["word"] == (None if isinstance(word, bytes) else word)
        assert row["state_label"] == labels.get(fields["state"])
        assert json.loads(row["three"]) == fields["three"]
        # The field `tid` is beside the context.
        assert (row["tid"], row["f_tid"]) == (tid, fields["tid"])
    assert bad > 0
    assert table.unfit == bad


@pytest.mark.parametrize("name", [HOSTILE, ORDER, GLOB, "axxb"])
def test_a_name_is_exact(made: Made, name: str) -> None:
    rows = list(lastwords.open(made.folder).table(name))
    truth = [at for at, _, _, own, _ in made.rows if own == name]
    assert [row["ts"] - ORIGIN for row in rows] == truth


def test_columns_are_projected(made: Made) -> None:
    recording = lastwords.open(made.folder)
    table = recording.table("values", columns=["big", "ts"])
    assert list(table.columns) == ["ts", "big"]
    assert len(list(table)) == sum(name == "values" for _, _, _, name, _ in made.rows)
    assert list(recording.table("values", columns=["big"]).columns) == ["big"]
    assert len(list(recording.table("values", columns=["ts"]))) == len(list(table))
    with pytest.raises(lastwords.ArgumentError, match="no column nothing"):
        recording.table("values", columns=["nothing"])


def test_an_unknown_event_has_its_nearest_names(made: Made) -> None:
    with pytest.raises(lastwords.UnknownEventError) as error:
        lastwords.open(made.folder).table("sched_swich")
    assert error.value.near == ["sched_switch"]
    assert isinstance(error.value, LookupError)


def test_two_traces_whose_types_differ(made: Made, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in made.folder.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    text = (other / "metadata").read_text()
    begin = text.index('name = "axxb"')
    changed = text[begin:].replace(
        "integer { size = 32; align = 8; } n", "string { encoding = UTF8; } n", 1
    )
    (other / "metadata").write_text(text[:begin] + changed)
    both = lastwords.open(made.folder, other)
    table = both.table("axxb")
    assert table.columns["n"] == "Utf8"
    kinds = duckdb.sql('SELECT DISTINCT json_type(n::JSON) FROM "table"').fetchall()
    assert len(kinds) >= 1
