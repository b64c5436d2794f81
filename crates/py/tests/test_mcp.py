"""Assistants get what was recorded as data, within limits, of the named paths only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import lastwords
import pytest
from lastwords._tools import MOST_BYTES, MOST_TEXT, NOTE, Limits, ToolError, cut, inside, run
from made import HOSTILE, ORDER, ORIGIN, Made
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


def asked(
    roots: list[Path], calls: list[tuple[str, dict[str, Any]]], *options: str
) -> list[tuple[bool, str]]:
    """Starts a server, and returns what it answers: an error or not, and the text."""
    words = ["-m", "lastwords.mcp", *options, *map(str, roots)]

    async def ask() -> list[tuple[bool, str]]:
        server = StdioServerParameters(command=sys.executable, args=words)
        async with Client(stdio_client(server)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"open", "why", "events", "sql"}
            assert all(
                tool.annotations and tool.annotations.read_only_hint for tool in tools.values()
            )
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
            return [(bool(result.is_error), result.content[0].text) for result in results]

    return anyio.run(ask)


def test_the_tools_answer(made: Made, sessions: Path) -> None:
    trace = str(made.folder)
    answers = asked(
        [made.folder, sessions],
        [
            ("open", {"path": trace}),
            ("why", {"path": "shop"}),
            ("events", {"path": trace, "names": ["axxb"], "last": 2}),
            ("events", {"path": trace, "last": 2, "filter": "n < 10", "cpus": [1]}),
            ("sql", {"paths": [trace], "statement": "SELECT count(*) AS n FROM sched_switch"}),
            (
                "sql",
                {"paths": [trace, str(sessions)], "statement": "SELECT count(*) AS n FROM crashes"},
            ),
        ],
    )
    assert not any(is_error for is_error, _ in answers)
    opened, why, last, filtered, count, crashes = [json.loads(text) for _, text in answers]
    assert set(opened) == {"note", "event_names", "truncated", "data"} and opened["note"] == NOTE
    assert HOSTILE in opened["data"]["event_names"]
    assert why["data"]["crashes"][0]["name"] == "shop"
    own = [row for row in made.rows if row[3] == "axxb"]
    assert [row[0] - ORIGIN for row in last["data"]["rows"]] == [row[0] for row in own[-2:]]
    below = [row for row in made.rows if row[4].get("n", 99) < 10 and row[1] == 1]
    assert [row[0] - ORIGIN for row in filtered["data"]["rows"]] == [row[0] for row in below[-2:]]
    assert count["data"] == {"columns": ["n"], "rows": [[67]]}
    assert crashes["data"]["rows"] == [[3]]


def test_only_named_paths_are_read(made: Made, sessions: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sessions)
    (tmp_path / "trace").symlink_to(made.folder)
    calls = [
        ("why", {"path": "/etc/passwd"}),
        ("why", {"path": str(sessions)}),
        ("open", {"path": "../.."}),
        ("why", {"path": "link"}),
        ("events", {"path": f"{made.folder}/../../../etc/passwd"}),
        ("sql", {"paths": [str(sessions)], "statement": "SELECT 1"}),
        (
            "sql",
            {"paths": [str(made.folder)], "statement": "SELECT * FROM read_text('/etc/passwd')"},
        ),
        (
            "sql",
            {"paths": [str(made.folder)], "statement": f"COPY (SELECT 1) TO '{tmp_path}/x.csv'"},
        ),
    ]
    for is_error, text in asked([made.folder, tmp_path], calls):
        assert is_error, text
        assert "root:" not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "trace"]


def test_hostile_names_are_data(made: Made) -> None:
    trace = str(made.folder)
    calls = [
        ("open", {"path": trace}),
        ("events", {"path": trace, "last": 500}),
        (
            "sql",
            {
                "paths": [trace],
                "statement": "SELECT name, fields FROM events WHERE name LIKE 'Ignore%'",
            },
        ),
        ("sql", {"paths": [trace], "statement": f'SELECT 1 AS "{ORDER}"'}),
        ("sql", {"paths": [trace], "statement": f"SELECT error('{ORDER}')"}),
    ]
    for is_error, text in asked([made.folder], calls):
        # One line of printable ASCII: what looks like an end of data or a new turn is inside a text.
        assert text.isascii() and text.isprintable()
        if not is_error:
            answer = json.loads(text)
            assert list(answer)[-1] == "data" and text.startswith('{"note": ')
            outside = json.dumps({name: value for name, value in answer.items() if name != "data"})
            assert "previous instructions" not in outside
            assert "previous instructions" in json.dumps(answer["data"])


def test_hidden_values_are_in_no_answer(made: Made) -> None:
    trace = str(made.folder)
    calls = [
        ("events", {"path": trace, "names": ["sched_switch"], "last": 500}),
        ("sql", {"paths": [trace], "statement": "SELECT next_comm FROM sched_switch", "rows": 500}),
    ]
    for is_error, text in asked([made.folder], calls, "--redact", "sched_switch/*_comm"):
        assert not is_error and "n1" not in text and len(json.loads(text)["data"]["rows"]) == 67


def test_answers_are_bounded(tmp_path: Path) -> None:
    made = Made(tmp_path / "trace", packet_events=10)
    for i in range(600):
        made.add(i, 0, 1, ORDER, message="long " * 400)
    made.write()
    trace = str(made.folder)
    calls = [
        ("events", {"path": trace, "last": 10**6}),
        ("sql", {"paths": [trace], "statement": "SELECT fields FROM events", "rows": 10**6}),
        ("sql", {"paths": [trace], "statement": "SELECT range FROM range(1000000)", "rows": 3}),
        ("sql", {"paths": [trace], "statement": "SELECT repeat('x', 10000000) AS x"}),
    ]
    for is_error, text in asked([made.folder], calls):
        answer = json.loads(text)
        assert not is_error and len(text) <= MOST_BYTES
        assert all(len(str(cell)) < 2 * MOST_TEXT for row in answer["data"]["rows"] for cell in row)
    assert cut("x" * 501) == "x" * 500 + "… (501 characters)"
    assert json.dumps(cut([[[[[[[[["deep"]]]]]]]]])).count("[") == 6


def test_calls_are_limited_in_time_and_memory(made: Made) -> None:
    trace = str(made.folder)
    endless = "SELECT max(range % 7) FROM range(1000000000000000)"
    ((is_error, text),) = asked(
        [made.folder], [("sql", {"paths": [trace], "statement": endless})], "--timeout", "2"
    )
    assert is_error and "stopped after" in text
    large = "SELECT count(*) FROM (SELECT DISTINCT range FROM range(100000000))"
    ((is_error, text),) = asked(
        [made.folder], [("sql", {"paths": [trace], "statement": large})], "--memory", "50"
    )
    assert is_error and "Out of Memory" in text


def test_an_input_that_ends_a_call_does_not_end_the_server(made: Made, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "metadata").write_text("/* CTF 1.8 */ trace { major = 1; ")
    answers = asked(
        [made.folder, tmp_path], [("open", {"path": "broken"}), ("why", {"path": str(made.folder)})]
    )
    assert [is_error for is_error, _ in answers] == [True, False]


def test_paths_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "ab").mkdir()
    assert inside("a", [str(tmp_path)]) == (tmp_path / "a").resolve()
    assert inside(str(tmp_path / "a"), [str(tmp_path / "a")]) == (tmp_path / "a").resolve()
    for path in (str(tmp_path / "ab"), "../ab", "missing", "\0"):
        with pytest.raises((ToolError, ValueError)):
            inside(path, [str(tmp_path / "a")])
    with pytest.raises(ToolError):
        run("why", {"path": "missing"}, Limits((str(tmp_path),)))


def test_without_a_path_there_is_no_server() -> None:
    ran = subprocess.run([sys.executable, "-m", "lastwords.mcp"], capture_output=True, check=False)
    assert ran.returncode == 2
    assert lastwords.__version__
