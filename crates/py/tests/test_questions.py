"""The ten questions: answers on crashes that the tests make up, and on real ones, where awk reads the
kernel's own text of the same trace."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
from lastwords.sql import Database

S = 1_000_000_000
DAY = 86_400 * S
BEGIN = 1_790_000_000 * S

# Of each crash: id, day, host, release, hardware, bios, signature, crash CPU, cause, lost events.
CRASHES = [
    ("a", 0, "web1", "6.1", "Box A", "1.0", "kernel|kernel-panic|frob", 1, "kernel-panic", 0),
    ("b", 1, "web2", "6.1", "Box A", "1.1", "kernel|kernel-panic|frob", 0, "kernel-panic", None),
    ("c", 2, "web1", "6.2", "Box A", "1.1", "kernel|kernel-panic|spin", 0, "kernel-panic", 7),
    ("d", 3, "web1", "6.2", "Box A", "1.1", "kernel|kernel-panic|spin", 0, "kernel-panic", 0),
    ("e", 4, "db1", "6.2", "Box B", None, None, None, "out-of-memory", 0),
]


def events() -> list[tuple[Any, ...]]:
    """Of each event: crash, nanoseconds before the end, CPU, thread, name of the thread, provider,
    name, fields."""
    found: list[tuple[Any, ...]] = []
    for i in range(20):
        # Every 100 ms on CPU 0, and 20 ticks more in the last half second.
        found.append(("a", (20 - i) * S // 10, 0, 5, "five", "timer", "tick", {"n": i}))
        found.append(("a", (20 - i) * S // 40, 0, 5, "five", "timer", "burst", {"n": i}))
    found += [
        ("a", 900, 1, 7, "old", "sched", "sched_switch", {"next_comm": "frobber", "next_pid": 42}),
        ("a", 400, 1, 42, "frobber", "irq", "irq_handler_entry", {"irq": 9, "name": "disk"}),
        ("a", 350, 1, 42, "frobber", "irq", "irq_handler_exit", {"irq": 9, "ret": 1}),
        ("a", 300, 1, 42, "frobber", "irq", "irq_handler_entry", {"irq": 9, "name": "disk"}),
        ("a", 290, 1, 42, "frobber", "irq", "softirq_entry", {"vec": 3}),
        ("a", 280, 1, 42, "frobber", "irq", "softirq_exit", {"vec": 3}),
        ("a", 270, 0, 5, "five", "raw_syscalls", "sys_enter", {"id": 0}),
        ("a", 260, 0, 5, "five", "raw_syscalls", "sys_exit", {"id": 0, "ret": 3}),
        ("a", 250, 0, 5, "five", "raw_syscalls", "sys_enter", {"id": 1}),
        ("a", 240, 0, 6, "six", "raw_syscalls", "sys_enter", {"id": 231}),
        ("a", 230, 0, 6, "six", "sched", "sched_process_exit", {"pid": 6}),
        ("a", 220, 0, 5, "five", "lock", "contention_begin", {"lock": 1}),
        ("a", 0, 1, 42, "frobber", "ftrace", "print", {"message": "end"}),
        ("b", 10, 0, 9, "nine", None, "syscall_entry_read", {"fd": 4}),
        ("b", 5, 0, 8, "eight", "shop::cart", "order", {}),
        ("b", 4, 0, 8, "eight", "span", "enter checkout", {}),
        ("b", 3, 0, 8, "eight", "span", "enter total", {}),
        ("b", 2, 0, 8, "eight", "span", "exit total", {}),
        ("b", 0, 0, 9, "nine", "kmem", "kfree", {}),
    ]
    # Before the kill, ENOMEM (12) once in 90 s, and 30 times in the last 10; EINTR (4) evenly.
    found += [("e", 60 * S, 0, 1, "one", None, "syscall_exit_mmap", {"ret": -12})]
    found += [("e", 100 * S, 0, 1, "one", None, "syscall_exit_mmap", {"ret": 0})]
    found += [
        ("e", 2 * S + i, 0, 1, "one", None, "syscall_exit_mmap", {"ret": -12}) for i in range(30)
    ]
    found += [
        ("e", i * 10 * S + 5 * S, 0, 1, "one", None, "syscall_exit_read", {"ret": -4})
        for i in range(10)
    ]
    found += [("e", 0, 0, 1, "one", "oom", "mark_victim", {"pid": 1})]
    return found


@pytest.fixture(scope="module")
def made_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of the lists above."""
    return write_set(tmp_path_factory.mktemp("made-set"))


def write_set(folder: Path) -> Path:
    """Write a data set from the lists above, with DuckDB. Return its folder."""
    promoted = [
        ("comm prev_comm next_comm message filename name", "VARCHAR"),
        (
            "pid tid prev_pid next_pid prev_tid next_tid prev_state prio target_cpu irq vec id ret fd count len size error",
            "BIGINT",
        ),
    ]
    columns = "crash_id VARCHAR, trace VARCHAR, channel VARCHAR, ts BIGINT, time TIMESTAMP, before_end_ns BIGINT, cpu INTEGER, tid BIGINT, pid BIGINT, comm VARCHAR, provider VARCHAR, name VARCHAR, level VARCHAR, "
    columns += ", ".join(f"f_{name} {kind}" for names, kind in promoted for name in names.split())
    columns += ", fields VARCHAR, context VARCHAR"
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE events ({columns})")
    ends = {row[0]: BEGIN + row[1] * DAY for row in CRASHES}
    for crash, before, cpu, tid, comm, provider, name, fields in events():
        own = {
            "crash_id": crash,
            "trace": "top",
            "ts": ends[crash] - before,
            "before_end_ns": before,
            "cpu": cpu,
            "tid": tid,
            "comm": comm,
            "provider": provider,
            "name": name,
            "fields": json.dumps(fields),
            **{
                f"f_{field}": value for field, value in fields.items() if field not in ("n", "lock")
            },
        }
        connection.execute(
            f"INSERT INTO events ({', '.join(own)}) VALUES ({', '.join('?' * len(own))})",
            list(own.values()),
        )
    connection.execute(
        "CREATE TABLE crashes (crash_id VARCHAR, ts BIGINT, time TIMESTAMP, host VARCHAR, kind VARCHAR, program VARCHAR, "
        "release VARCHAR, arch VARCHAR, hardware VARCHAR, bios VARCHAR, cause VARCHAR, signature VARCHAR, "
        "crash_cpu INTEGER, has_losses BOOLEAN, lost_events BIGINT, path VARCHAR)"
    )
    for crash, day, host, release, hardware, bios, signature, cpu, cause, lost in CRASHES:
        ts = BEGIN + day * DAY
        connection.execute(
            "INSERT INTO crashes VALUES (?, ?, make_timestamp(?), ?, 'dump', NULL, ?, 'x86_64', ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                crash,
                ts,
                ts // 1000,
                host,
                release,
                hardware,
                bios,
                cause,
                signature,
                cpu,
                lost != 0,
                lost,
                f"/var/{crash}",
            ],
        )
    connection.execute(
        "CREATE TABLE losses AS SELECT * FROM (VALUES ('b', 'top', 'damaged', true), ('b', 'top', 'damaged', true), "
        "('c', 'top', 'discarded', true), ('d', 'top', 'overwritten', false)) t(crash_id, trace, cause, is_loss)"
    )
    connection.execute("CREATE TABLE traces AS SELECT crash_id, 'top' AS trace FROM crashes")
    for table in ("events", "crashes", "losses", "traces"):
        place = folder / "v1" / table / "day=2026-09-21"
        place.mkdir(parents=True)
        connection.execute(f"COPY {table} TO '{place}/part-all.parquet' (FORMAT parquet)")
    return folder


def ask(place: Path, statement: str) -> list[tuple[Any, ...]]:
    database = Database([place])
    found = list(database.query(statement).rows())
    database.close()
    return found


FROB, SPIN = "kernel|kernel-panic|frob", "kernel|kernel-panic|spin"


def test_new_signatures(made_set: Path) -> None:
    found = ask(
        made_set, "SELECT first_release, signature, crashes, hosts, is_new FROM new_signatures"
    )
    assert found == [("6.1", FROB, 2, 2, False), ("6.2", SPIN, 2, 1, True)]


def test_crashes_by_machine(made_set: Path) -> None:
    found = ask(
        made_set,
        "SELECT release, hardware, bios, crashes, hosts, epoch(since)::BIGINT FROM crashes_by_machine",
    )
    at = [BEGIN // S + 86_400 * day for day in range(5)]
    assert found == [
        ("6.2", "Box A", "1.1", 2, 1, at[2]),
        ("6.1", "Box A", "1.0", 1, 1, at[0]),
        ("6.1", "Box A", "1.1", 1, 1, at[1]),
        ("6.2", "Box B", None, 1, 1, at[4]),
    ]


def test_last_events(made_set: Path) -> None:
    found = ask(
        made_set,
        "SELECT crash_id, cpu, place, before_end_ns, name FROM last_events WHERE crash_id = 'a'",
    )
    own = [row for row in events() if row[0] == "a"]
    for cpu in (0, 1):
        truth = sorted((row[1], row[6]) for row in own if row[2] == cpu)[:5]
        assert [row[3:] for row in found if row[1] == cpu] == truth
        assert [row[2] for row in found if row[1] == cpu] == [1, 2, 3, 4, 5]


def test_last_second(made_set: Path) -> None:
    found = ask(
        made_set,
        "SELECT name, last_second, before, ratio FROM last_second WHERE crash_id = 'a' AND name IN ('tick', 'burst')",
    )
    # Ticks: 10 in the last second and 10 in the second before. Bursts: all in the last half second.
    assert found == [("tick", 10, 10, 1.0), ("burst", 20, 0, None)]


def test_crash_cpu(made_set: Path) -> None:
    found = ask(
        made_set,
        "SELECT crash_id, crash_cpu, comm, tid, since_before_end_ns, last_event FROM crash_cpu",
    )
    assert found == [("a", 1, "frobber", 42, 900, "print"), ("b", 0, "nine", 9, None, "kfree")]


def test_open_interrupts(made_set: Path) -> None:
    found = ask(
        made_set,
        "SELECT crash_id, cpu, interrupt, number, before_end_ns, comm FROM open_interrupts",
    )
    assert found == [("a", 1, "irq_handler", 9, 300, "frobber")]


def test_never_returned(made_set: Path) -> None:
    found = ask(
        made_set,
        "SELECT crash_id, what, name, id, tid, before_end_ns FROM never_returned ORDER BY ALL",
    )
    assert found == [
        ("a", "lock", None, None, 5, 220),
        ("a", "system call", None, 1, 5, 250),
        ("b", "span", "checkout", None, 8, 4),
        ("b", "system call", "read", None, 9, 10),
    ]


def test_errnos_before_oom(made_set: Path) -> None:
    found = ask(made_set, "SELECT crash_id, errno, last_10_s, before, ratio FROM errnos_before_oom")
    assert [row[:4] for row in found] == [("e", 12, 30, 1), ("e", 4, 1, 9)]
    assert found[0][4] == pytest.approx(3 / (1 / 90)) and found[1][4] == pytest.approx(
        0.1 / (9 / 90)
    )


def test_hosts_and_signatures(made_set: Path) -> None:
    found = ask(
        made_set,
        "SELECT signature, crashes, hosts, pattern, most_frequent_host FROM hosts_and_signatures WHERE pattern = 'repeats'",
    )
    assert found == [(SPIN, 2, 1, "repeats", "web1")]
    assert ask(
        made_set, "SELECT signature, hosts FROM hosts_and_signatures WHERE pattern = 'spreads'"
    ) == [(FROB, 2)]


def test_unsafe_answers(made_set: Path) -> None:
    found = ask(made_set, "SELECT crash_id, lost_events, causes FROM unsafe_answers")
    assert found == [("b", None, "damaged: 2"), ("c", 7, "discarded: 1")]


# The kernel's own text of the dump `ftrace-6.12-basic`, as awk sees it: columns are separated by blanks
# behind the task, whose name may have some.
PARSE = r"""
/^#/ { next }
match($0, /\[[0-9]+\] [^ ]+ +[0-9]+\.[0-9]+: /) {
    task = substr($0, 1, RSTART - 1); sub(/ +$/, "", task); sub(/^ +/, "", task)
    pid = task; sub(/.*-/, "", pid)
    split(substr($0, RSTART, RLENGTH), part, " ")
    cpu = substr(part[1], 2, 3) + 0; at = part[3] + 0
    rest = substr($0, RSTART + RLENGTH); name = rest; sub(/[:(].*/, "", name)
    body()
}
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The text of both instances."""
    place = os.environ.get("LASTWORDS_CASES")
    if not place:
        pytest.skip("LASTWORDS_CASES is not set")
    truth = Path(place, "ftrace-6.12-basic/truth")
    folder = tmp_path_factory.mktemp("text")
    (folder / "top").write_bytes(
        subprocess.run(
            ["zstd", "-dc", truth / "top/trace.zst"], check=True, capture_output=True
        ).stdout
    )
    return {"top": folder / "top", "errors": truth / "errors/trace"}


def awk(body: str, end: str, *files: Path) -> list[list[str]]:
    program = f"function body() {{ {body} }}\n{PARSE}\nEND {{ {end} }}"
    ran = subprocess.run(["awk", program, *files], check=True, capture_output=True, text=True)
    return [line.split("\t") for line in ran.stdout.splitlines()]


def test_the_kernels_text_has_these_last_events(
    cases: dict[str, Path], text: dict[str, Path]
) -> None:
    for trace, file in text.items():
        lines = awk(
            'n = ++count[cpu]; kept[cpu, n] = pid "\\t" name',
            'for (c in count) for (k = 0; k < 5 && count[c] > k; k++) print c "\\t" k + 1 "\\t" kept[c, count[c] - k]',
            file,
        )
        truth = sorted((int(cpu), int(place), int(pid), name) for cpu, place, pid, name in lines)
        found = ask(
            cases["ftrace"],
            f"SELECT cpu, place, tid, name FROM last_events WHERE trace = '{trace}' ORDER BY ALL",
        )
        # System calls and markers have other names in the text.
        calls = {"sys_enter", "sys_exit", "print"}
        for row, real in zip(found, truth, strict=True):
            assert row[:3] == real[:3] and (row[3] == real[3] or row[3] in calls), (row, real)


def test_the_kernels_text_has_these_counts_of_the_last_second(
    cases: dict[str, Path], text: dict[str, Path]
) -> None:
    counts = "if (at > newest) newest = at; n++; ats[n] = at; names[n] = name"
    sums = 'for (i = 1; i <= n; i++) { if (newest - ats[i] <= 1) late[names[i]]++; all[names[i]]++ } for (x in late) print x "\\t" late[x] "\\t" all[x] - late[x]'
    truth = {
        name: (int(late), int(before)) for name, late, before in awk(counts, sums, *text.values())
    }
    found = ask(cases["ftrace"], "SELECT name, last_second, before FROM last_second")
    named = {name: (late, before) for name, late, before in found}
    assert len(named) > 10
    for name, both in named.items():
        if name in truth:
            assert both == truth[name], name
    assert sum(late for late, _ in named.values()) == sum(late for late, _ in truth.values())


def test_the_kernels_text_has_this_switch_on_the_crash_cpu(
    cases: dict[str, Path], text: dict[str, Path]
) -> None:
    last = 'if (cpu == 1 && name == "sched_switch") { line = rest; sub(/.*next_comm=/, "", line) } if (cpu == 1) end = at; if (at > newest) newest = at; if (name == "sched_switch" && cpu == 1) switched = at'
    ((line, since),) = awk(last, 'printf "%s\\t%.6f\\n", line, newest - switched', text["top"])
    ((cpu, comm, tid, before),) = ask(
        cases["ftrace"], "SELECT crash_cpu, comm, tid, since_before_end_ns FROM crash_cpu"
    )
    assert cpu == 1 and line.startswith(f"{comm} next_pid={tid} ")
    assert abs(before / S - float(since)) < 2e-6


def test_the_kernels_text_has_these_open_system_calls(
    cases: dict[str, Path], text: dict[str, Path]
) -> None:
    step = 'if (rest ~ /^sys_[a-z0-9_]+\\(/ || name == "sys_enter") { open[pid] = at } else if (rest ~ /^sys_[a-z0-9_]+ -> / || name == "sys_exit") delete open[pid]; else if (name == "sched_process_exit") gone[pid] = 1'
    lines = awk(
        step, 'for (p in open) if (!(p in gone)) printf "%s\\n", p', text["errors"], text["top"]
    )
    truth = sorted(int(pid) for (pid,) in lines)
    found = ask(
        cases["ftrace"], "SELECT tid FROM never_returned WHERE what = 'system call' ORDER BY tid"
    )
    assert [tid for (tid,) in found] == truth and truth


def test_nobody_lost_events_in_this_dump(cases: dict[str, Path]) -> None:
    assert (
        ask(cases["ftrace"], "FROM unsafe_answers") == []
        and ask(cases["ftrace"], "FROM open_interrupts") == []
    )


def test_babeltrace_has_these_counts(cases: dict[str, Path]) -> None:
    if subprocess.run(
        ["sh", "-c", "command -v babeltrace2"], capture_output=True, check=False
    ).returncode:
        pytest.skip("babeltrace2 is not there")
    ran = subprocess.run(["babeltrace2", cases["ctf"]], check=True, capture_output=True, text=True)
    names = [line.split(": {")[0].split()[-1] for line in ran.stdout.splitlines()]
    found = dict(ask(cases["ctf"], "SELECT name, count(*) FROM events GROUP BY name"))
    assert found == {name: names.count(name) for name in set(names)} and len(names) == 4472
