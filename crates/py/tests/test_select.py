"""Selections are pushed down, and are those of the program."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import lastwords
import pytest
from made import ORDER, ORIGIN, Made


def ats(events: lastwords.Events) -> list[int]:
    return [row["ts"] - ORIGIN for row in events]


def truth(made: Made, wanted) -> list[int]:
    return [row[0] for row in made.rows if wanted(*row)]


def test_names_cpus_and_times(made: Made) -> None:
    recording = lastwords.open(made.folder)
    middle, end = made.rows[200][0], made.rows[-1][0]
    assert ats(recording.events("sched_switch")) == truth(
        made, lambda at, cpu, tid, name, f: name == "sched_switch"
    )
    assert ats(recording.events(["ax*", "values"])) == truth(
        made, lambda at, cpu, tid, name, f: name in ("axxb", "values")
    )
    assert ats(recording.events(cpus=[1])) == truth(made, lambda at, cpu, *_: cpu == 1)
    assert ats(recording.events(since=ORIGIN + middle)) == truth(made, lambda at, *_: at >= middle)
    assert ats(recording.events(until=ORIGIN + middle)) == truth(made, lambda at, *_: at <= middle)
    moment = datetime.fromtimestamp((ORIGIN + middle) // 10**9, UTC)
    whole = (ORIGIN + middle) // 10**9 * 10**9 - ORIGIN
    assert ats(recording.events(since=moment)) == truth(made, lambda at, *_: at >= whole)
    assert ats(recording.events(since=timedelta(seconds=1))) == truth(
        made, lambda at, *_: at >= end - 10**9
    )


def test_last_filter_and_limit(made: Made) -> None:
    recording = lastwords.open(made.folder)
    assert ats(recording.events(last=7)) == [row[0] for row in made.rows[-7:]]
    assert ats(recording.events(limit=7)) == [row[0] for row in made.rows[:7]]
    found = ats(recording.events(filter="n >= 100 && n < 200"))
    assert found == truth(made, lambda at, cpu, tid, name, f: 100 <= f.get("n", -1) < 200)
    assert ats(recording.table("axxb", filter="n > 300")) == truth(
        made, lambda at, cpu, tid, name, f: name == "axxb" and f["n"] > 300
    )


def test_order_of_streams(made: Made) -> None:
    apart = ats(lastwords.open(made.folder).events(ordered=False))
    assert apart == sorted(apart, key=lambda at: (at // 10_000_000 % 2, at))
    assert sorted(apart) == [row[0] for row in made.rows]


def test_columns_are_those_that_are_wanted(made: Made) -> None:
    events = lastwords.open(made.folder).events(columns=["name", "ts"])
    assert list(events.columns) == ["ts", "name"]
    assert len(duckdb.sql("SELECT DISTINCT name FROM events").fetchall()) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"filter": "n =="}, "byte 4"),
        ({"filter": "nothing == 1"}, "nothing"),
        ({"columns": ["nothing"]}, "nothing"),
        ({"since": datetime(2026, 11, 29)}, "time zone"),
    ],
)
def test_arguments_that_cannot_be(made: Made, arguments: dict, said: str) -> None:
    with pytest.raises(lastwords.ArgumentError, match=said) as error:
        lastwords.open(made.folder).events(**arguments)
    assert isinstance(error.value, ValueError)


def test_facts_about_a_crash(made: Made) -> None:
    recording = lastwords.open(made.folder)
    (trace,) = recording.traces
    assert (trace.kind, trace.is_dated, trace.streams) == ("folder of CTF", True, 2)
    crash = recording.crash
    assert (crash.host, crash.cause, crash.signature, crash.verdict) == (
        "made",
        "unknown",
        None,
        None,
    )
    assert crash.ts == ORIGIN + made.rows[-1][0]
    assert "sched_switch" in recording.event_names


def test_facts_about_sessions(sessions) -> None:
    recording = lastwords.open(sessions)
    assert sorted(crash.name for crash in recording.crashes) == ["server", "shop"]
    for crash in recording.crashes:
        assert crash.verdict and crash.verdict["sentence"] == crash.why
    with pytest.raises(lastwords.ArgumentError, match="2 crashes"):
        recording.crash  # noqa: B018
    assert [trace.trace for trace in lastwords.open(sessions, names=["shop"]).traces] == ["shop"]


def test_hidden_values_are_in_no_column(made: Made) -> None:
    recording = lastwords.open(made.folder, redact=["message"], redact_hash=["next_comm"])
    assert "previous instructions" not in str([row["fields"] for row in recording.events(ORDER)])
    assert {row["message"] for row in recording.table(ORDER)}.isdisjoint({ORDER})
    shown = [row["next_comm"] for row in recording.table("sched_switch")]
    truth = [fields["next_comm"] for *_, name, fields in made.rows if name == "sched_switch"]
    assert set(shown).isdisjoint(truth)
    assert len(set(zip(shown, truth, strict=True))) == len(set(truth)) == len(set(shown))
