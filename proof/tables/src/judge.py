"""Judges data sets of crashes: reads their tables with DuckDB, PyArrow and Polars, and recomputes
them from `lastwords convert --to json`. It knows docs/TABLES.md and docs/JSON.md, and no code of
lastwords."""

import collections
import glob
import json
import os
import re
import resource
import subprocess
import sys
import time

TABLES = ["events", "slice", "sched", "thread", "process", "log", "losses", "traces", "crashes"]
LASTWORDS = os.environ.get("LASTWORDS", "lastwords")
DEAD = 0x30


def parts(data_set, table):
    return sorted(glob.glob(f"{data_set}/v1/{table}/day=*/part-*.parquet"))


# --- engines ---------------------------------------------------------------------------------------


def by_duckdb(data_set, table):
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    pattern = f"{data_set}/v1/{table}/*/*.parquet"
    cursor = connection.execute(f"SELECT * FROM read_parquet('{pattern}', hive_partitioning = false)")
    names = [column[0] for column in cursor.description]
    return names, cursor.fetchall()


def by_pyarrow(data_set, table):
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.read_table(path, partitioning=None) for path in parts(data_set, table)]
    for own in tables:
        check_types(table, own.schema)
    whole = pa.concat_tables(tables)
    names = whole.schema.names
    return names, list(zip(*[whole.column(name).to_pylist() for name in names]))


def by_polars(data_set, table):
    import polars

    frame = polars.concat([polars.read_parquet(path, hive_partitioning=False) for path in parts(data_set, table)])
    return frame.columns, frame.rows()


def check_types(table, schema):
    import pyarrow as pa

    allowed = [pa.int64(), pa.int32(), pa.string(), pa.bool_(), pa.timestamp("us", tz="UTC")]
    for field in schema:
        assert field.type in allowed, f"{table}.{field.name}: {field.type}"
        is_time = field.name in ("time", "start_time")
        assert is_time == (field.type == allowed[4]), f"{table}.{field.name}: {field.type}"
    assert schema.metadata[b"lastwords.tables"] == b"1", schema.metadata


def plain(value):
    """A value as all engines have it: times as microseconds."""
    if hasattr(value, "timestamp"):
        from datetime import timedelta, timezone, datetime

        return (value - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)
    return value


def without_names(table, header):
    """The rows, without the names of traces that JSON names otherwise."""
    if any(trace["env"].get("tracer_name") == "ftrace" for trace in header["traces"]):
        return table
    return {name: [dict(row, trace=None) if row.get("trace") else row for row in own] for name, own in table.items()}


def rows(data_set, table):
    """The rows of a table, which all engines read alike, as dicts."""
    found = {}
    for name, read in [("DuckDB", by_duckdb), ("PyArrow", by_pyarrow), ("Polars", by_polars)]:
        names, values = read(data_set, table)
        values = [tuple(plain(value) for value in row) for row in values]
        found[name] = (names, collections.Counter(values), values)
    one, others = found["PyArrow"], [found["DuckDB"], found["Polars"]]
    for other in others:
        assert other[0] == one[0] and other[1] == one[1], f"{table}: two engines read other rows"
    return [dict(zip(one[0], row)) for row in one[2]]


# --- the truth -------------------------------------------------------------------------------------


def nanoseconds(text):
    """The nanoseconds since the epoch of `2026-11-21T08:42:00.123456789Z`."""
    import calendar

    day, part = text.rstrip("Z").split(".")
    return calendar.timegm(time.strptime(day, "%Y-%m-%dT%H:%M:%S")) * 10**9 + int(part)


class Event:
    def __init__(self, line, header):
        own = json.loads(line)
        trace = header["traces"][own["trace"]]
        self.trace = trace["name"]
        self.is_ftrace = trace["env"].get("tracer_name") == "ftrace"
        if not self.is_ftrace:
            # LTTng's traces have other names there.
            self.trace = None
        self.is_kernel = self.is_ftrace or trace["env"].get("domain") == "kernel"
        if self.is_ftrace and self.trace == "ftrace":
            self.trace = "top"
        self.key = own["trace"]
        self.creator = trace["env"].get("vpid")
        self.ts = nanoseconds(own["time"]) if "time" in own else None
        self.cpu = own.get("cpu")
        self.stream = own["stream"]
        self.name = own["event"]
        self.fields = own.get("fields", {})
        self.context = own.get("context", {})
        self.level = own.get("level")
        self.lost = self.context.get("lost", 0) != 0 if self.is_ftrace else False

    def own_name(self):
        if not self.is_kernel:
            return None
        provider, _, name = self.name.rpartition(":")
        return name if provider in ("", "sched", "irq", "syscalls", "raw_syscalls", "ftrace") else None

    def tid(self):
        names = ["pid"] if self.is_ftrace else ["tid", "vtid"]
        return next((self.context[name] for name in names if name in self.context), None)

    def pid(self):
        names = ["tgid"] if self.is_ftrace else ["pid", "vpid"]
        found = next((self.context[name] for name in names if name in self.context), None)
        return None if self.is_ftrace and found == 0 else found

    def field(self, *names):
        value = next((self.fields[name] for name in names if name in self.fields), None)
        return value["value"] if isinstance(value, dict) and "value" in value else value


def truth(path, more=()):
    command = [LASTWORDS, "convert", path, "--to", "json", "-o", "-", *more]
    ran = subprocess.run(command, capture_output=True, check=False)
    lines = ran.stdout.decode().splitlines()
    assert lines, f"{command}: {ran.stderr.decode()}"
    header = json.loads(lines[0])
    return header, [Event(line, header) for line in lines[1:]]


# --- events ----------------------------------------------------------------------------------------

ESCAPES = re.compile(r"\ufffd|\\u\{[0-9a-f]+\}|\\[nrt]")


def is_same(exact, shown):
    """The exact value of a table and that of the JSON line: bytes that are not UTF-8, and characters
    that could steer a terminal, differ."""
    if exact == shown:
        return True
    if isinstance(exact, dict) and isinstance(shown, dict):
        return list(exact) == list(shown) and all(is_same(exact[name], shown[name]) for name in exact)
    if isinstance(exact, list) and isinstance(shown, list):
        return len(exact) == len(shown) and all(map(is_same, exact, shown))
    is_bytes = isinstance(exact, dict) and list(exact) == ["bytes"]
    is_text = isinstance(exact, str) and isinstance(shown, str)
    return (is_bytes or is_text) and isinstance(shown, str) and ESCAPES.search(shown) is not None


def is_same_context(exact, event):
    if not event.is_ftrace:
        return is_same(exact, event.context)
    # The JSON lines have the flags as the kernel prints them, and more.
    return all(exact.get(name, -1) == event.context.get(name, -1) for name in ("pid", "comm"))


def events(name, table, told):
    def own(row):
        provider = row["provider"]
        return (row["trace"], row["ts"] if row["ts"] is not None else -1, -1 if row["cpu"] is None else row["cpu"],
                f"{provider}:{row['name']}" if provider else row["name"])

    def other(event):
        return (event.trace, -1 if event.ts is None else event.ts, -1 if event.cpu is None else event.cpu, event.name)

    assert len(table) == len(told), f"{name}: {len(table)} rows of {len(told)} events"
    groups = collections.defaultdict(lambda: ([], []))
    for row in table:
        groups[own(row)][0].append(row)
    for event in told:
        groups[other(event)][1].append(event)
    for key, (rows_of, events_of) in groups.items():
        assert len(rows_of) == len(events_of), f"{name}: {key}: {len(rows_of)} rows, {len(events_of)} events"
        left = list(events_of)
        for row in rows_of:
            fields = json.loads(row["fields"])
            context = json.loads(row["context"] or "{}")
            at = next((at for at, event in enumerate(left)
                       if is_same(fields, event.fields) and is_same_context(context, event)), None)
            assert at is not None, f"{name}: {key}: {row['fields']} {row['context']} is none of {left[0].fields} {left[0].context}"
            event = left.pop(at)
            for promoted, value in row.items():
                if promoted.startswith("f_") and value is not None:
                    assert is_same(value, event.field(promoted[2:])), f"{name}: {key}: {promoted}: {value}"
            assert row["level"] == event.level, f"{name}: {key}: {row['level']}"
            if event.tid() is not None:
                assert row["tid"] == event.tid(), f"{name}: {key}: {row['tid']}"
            assert row["time"] is None or row["time"] == row["ts"] // 1000, f"{name}: {row}"


# --- what began and ended --------------------------------------------------------------------------


def call(event):
    name = event.own_name() or ""
    for prefix, is_end in [("sys_enter", False), ("syscall_entry", False), ("sys_exit", True), ("syscall_exit", True)]:
        if name == prefix:
            return is_end, event.field("id", "nr")
        if name.startswith(prefix + "_"):
            return is_end, name[len(prefix) + 1:]
    return None


def recomputed(told):
    """What ran, and what began and ended: (kind, trace, identity, begin, end) of two events that follow
    each other and are of one identity."""
    last, found, running = {}, collections.Counter(), {}
    lost = collections.Counter()

    def step(event, key, kind, is_end, begin_of):
        """The step of an identity. Returns the begin if this is the end of it."""
        before = last.get(key)
        last[key] = None if is_end else (event.ts, begin_of, lost[kind_of(kind, event)])
        # The number of a call that restores registers is -1 at its end.
        is_own = before and (before[1] == begin_of or kind == "syscall" and begin_of == -1)
        if is_end and is_own and before[2] == lost[kind_of(kind, event)]:
            return before[0]
        return None

    def kind_of(kind, event):
        return (event.key, event.cpu) if kind in ("sched", "irq", "softirq") else event.key

    for event in told:
        if event.ts is None:
            continue
        if event.lost:
            lost[(event.key, event.cpu)] += 1
            lost[event.key] += 1
            running.pop((event.key, event.cpu), None)
        name = event.own_name()
        tid = event.tid()
        if tid is None:
            tid = running.get((event.key, event.cpu))
        if name == "sched_switch":
            prev, following = event.field("prev_tid", "prev_pid"), event.field("next_tid", "next_pid")
            key = ("sched", event.key, event.cpu)
            begin = step(event, key, "sched", True, prev)
            if begin is not None:
                found[("sched", event.trace, (event.cpu, prev), begin, event.ts)] += 1
            step(event, key, "sched", False, following)
            running[(event.key, event.cpu)] = following
            if (event.field("prev_state") or 0) & DEAD:
                ended(event, prev, last, found, lost)
        elif name in ("irq_handler_entry", "irq_handler_exit"):
            irq = event.field("irq")
            begin = step(event, ("irq", event.key, event.cpu, irq), "irq", name.endswith("exit"), irq)
            if begin is not None:
                found[("irq", event.trace, (event.cpu, irq), begin, event.ts)] += 1
        elif name in ("softirq_entry", "irq_softirq_entry", "softirq_exit", "irq_softirq_exit"):
            vec = event.field("vec")
            begin = step(event, ("softirq", event.key, event.cpu, vec), "softirq", name.endswith("exit"), vec)
            if begin is not None:
                found[("softirq", event.trace, (event.cpu, vec), begin, event.ts)] += 1
        elif name == "sched_process_exit":
            ended(event, tid, last, found, lost)
        elif call(event) is not None and tid is not None:
            is_end, which = call(event)
            begin = step(event, ("syscall", event.key, tid), "syscall", is_end, which)
            if begin is not None:
                found[("syscall", event.trace, tid, begin, event.ts)] += 1
        elif event.name in ("ftrace:funcgraph_entry", "ftrace:funcgraph_exit"):
            depth, function = event.field("depth"), event.field("func")
            cpu = event.cpu if tid == 0 else None
            begin = step(event, ("function", event.key, tid, cpu, depth), "function",
                         event.name.endswith("exit"), function)
            if begin is not None:
                found[("function", event.trace, tid, begin, event.ts)] += 1
        elif event.name.startswith(("span:new ", "span:close ")):
            pid = event.pid() if event.pid() is not None else event.creator
            span = event.field("span_id")
            begin = step(event, ("span", event.key, pid, span), "span", event.name.startswith("span:close"), span)
            if begin is not None:
                found[("span", event.trace, span, begin, event.ts)] += 1
    return found


def ended(event, tid, last, found, lost):
    """A thread ends, and with it the system call and the functions that it is in."""
    for key in [("syscall", event.key, tid)] + [key for key in last if key[0] == "function" and key[1:3] == (event.key, tid)]:
        before = last.pop(key, None)
        if before and before[2] == lost[event.key]:
            found[(key[0], event.trace, tid, before[0], event.ts)] += 1


def known(slices, running):
    found = collections.Counter()
    for row in slices:
        if row["end_ts"] is not None:
            category = row["category"]
            identity = {"irq": (row["cpu"], row["id"]), "softirq": (row["cpu"], row["id"]), "span": row["id"]}
            found[(category, row["trace"], identity.get(category, row["tid"]), row["ts"], row["end_ts"])] += 1
            assert row["dur"] == row["end_ts"] - row["ts"] and row["is_open"] is False, row
        else:
            assert row["dur"] is None and row["is_open"] is not False, row
    for row in running:
        if row["ts"] is not None and row["end_ts"] is not None:
            found[("sched", row["trace"], (row["cpu"], row["tid"]), row["ts"], row["end_ts"])] += 1
            assert row["dur"] == row["end_ts"] - row["ts"] and row["is_open"] is False, row
        else:
            assert row["dur"] is None, row
    return found


def timeline(name, slices, running, told, is_lossy):
    expected, found = recomputed(told), known(slices, running)
    wrong = found - expected
    assert not wrong, f"{name}: no two events make {next(iter(wrong))}; {len(wrong)} of {len(found)}"
    # Where the ring of a CPU was overwritten, nobody knows what threads did on it before its first
    # event.
    first = {}
    for event in told:
        if event.ts is not None:
            first.setdefault((event.trace, event.cpu, event.stream), event.ts)
    floor = {}
    for (trace, _, _), time_of in first.items():
        floor[trace] = max(floor.get(trace, time_of), time_of)
    missing = collections.Counter({key: count for key, count in (expected - found).items() if key[3] > floor[key[1]]})
    if not is_lossy:
        assert not missing, f"{name}: {next(iter(missing))} has no row; {len(missing)} of {len(expected)}"
    kinds = collections.Counter()
    for key, count in found.items():
        kinds[key[0]] += count
    opened = collections.Counter(row["category"] for row in slices if row["is_open"])
    return kinds, opened, sum(missing.values())


def threads(name, table, told):
    expected = collections.Counter()
    for event in told:
        if event.tid() is not None:
            expected[(event.trace, event.tid())] += 1
    found = collections.Counter()
    for row in table:
        if row["events"]:
            found[(row["trace"], row["tid"])] += row["events"]
    assert all(found[key] == count for key, count in expected.items()), f"{name}: events of threads: {found} {expected}"


def logs(name, table, path, header, told):
    """Log records, and the lines of the kernel's log, as `convert --with-log` has them beside a trace
    of ftrace."""
    records = collections.Counter((row["ts"], row["level"], row["text"]) for row in table if row["facility"] is None)
    messages = [event for event in told if event.level and isinstance(event.fields.get("message"), str)]
    written = collections.Counter((event.ts, event.level, event.fields["message"]) for event in messages)
    assert records == written, f"{name}: log records: {records - written} {written - records}"
    found = collections.Counter((row["severity"], row["facility"], row["text"]) for row in table if row["facility"] is not None)
    if not found or not any(trace["env"].get("tracer_name") == "ftrace" for trace in header["traces"]):
        return len(messages) + sum(found.values())
    _, told = truth(path, ["--with-log"])
    lines = [event for event in told if event.name == "kernel:log"]
    expected = collections.Counter((event.field("level"), event.field("facility"), event.field("text")) for event in lines)
    odd = sum((found - expected).values())
    assert sum(found.values()) == len(lines) and odd <= len(lines) // 100, f"{name}: {odd} lines of the log differ"
    return len(lines)


# --- other programs --------------------------------------------------------------------------------


def awk(command, program):
    """The lines that awk prints of what a command prints."""
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    second = subprocess.run(["awk", program], stdin=first.stdout, capture_output=True, check=True, text=True)
    first.stdout.close()
    first.wait()
    return second.stdout.splitlines()


def against_babeltrace(name, path, table, host):
    """Counts of events by name of a trace in a folder of CTF."""
    lines = awk(["babeltrace2", path],
                'match($0, /^\\[[^]]*\\] \\([^)]*\\) /) { line = substr($0, RLENGTH + 1); '
                f'if (index(line, "{host}") == 1) sub(/^[^ ]* /, "", line); '
                'split(line, part, ": {"); print part[1] }')
    found = collections.Counter(lines)
    ours = collections.Counter(f"{row['provider']}:{row['name']}" if row["provider"] else row["name"] for row in table)
    assert found == ours, f"{name}: babeltrace2 has {found - ours}, the table {ours - found}"
    return len(lines)


def against_trace_cmd(name, path, table):
    """Counts of events by CPU and name of a trace.dat file."""
    lines = awk(["trace-cmd", "report", path], 'match($0, /\\[[0-9]+\\]/) { cpu = substr($0, RSTART + 1, RLENGTH - 2) + 0; '
                'rest = substr($0, RSTART + RLENGTH); sub(/^ +[a-zA-Z.0-9#]* *[0-9]+\\.[0-9]+: +/, "", rest); '
                'split(rest, part, ":"); print cpu " " part[1] }')
    found = collections.Counter(line.split(" ")[0] for line in lines)
    ours = collections.Counter(str(row["cpu"]) for row in table)
    switches = [line for line in lines if line.endswith(" sched_switch")]
    own = sum(1 for row in table if row["name"] == "sched_switch")
    assert found == ours and len(switches) == own, f"{name}: trace-cmd has {found}, {len(switches)}; the table {ours}, {own}"
    return len(lines)


# --- the parts -------------------------------------------------------------------------------------


def values(data_set, *paths):
    all_rows = {table: rows(data_set, table) for table in TABLES}
    ids = collections.Counter(row["crash_id"] for row in all_rows["crashes"])
    assert set(ids.values()) == {1}, "a crash is there twice"
    for table, own in all_rows.items():
        assert {row["crash_id"] for row in own} <= set(ids), f"{table}: rows of no crash"
    print(f"{'input':<16} {'events':>7} {'slices, what ran':<58} {'open':>5} {'log':>5} losses")
    for path in paths:
        name = os.path.basename(path)
        crashes = [row for row in all_rows["crashes"] if row["path"] == path or row["path"].startswith(path + "/")]
        assert crashes, f"{name}: no crash is of {path}"
        own = {row["crash_id"] for row in crashes}
        table = {name: [row for row in all_rows[name] if row["crash_id"] in own] for name in TABLES}
        header, told = truth(path)
        table = without_names(table, header)
        is_lossy = any(trace["losses"] for trace in header["traces"]) or any(row["is_loss"] for row in table["losses"])
        events(name, table["events"], told)
        kinds, opened, missing = timeline(name, table["slice"], table["sched"], told, is_lossy)
        threads(name, table["thread"], told)
        lines = logs(name, table["log"], path, header, told)
        by = ""
        if os.path.isfile(f"{path}/metadata"):
            host = header["traces"][0]["env"].get("hostname", " ")
            by = f"; babeltrace2: {against_babeltrace(name, path, table['events'], host)}"
        elif path.endswith(".dat"):
            by = f"; trace-cmd: {against_trace_cmd(name, path, table['events'])}"
        shown = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        lossy = f"yes, {missing} without an end" if is_lossy else "no"
        print(f"{name:<16} {len(told):>7} {shown:<58} {sum(opened.values()):>5} {lines:>5} {lossy}{by}")


def whole(data_set):
    """Each part is whole, and each crash in `crashes` has a part in each table."""
    import pyarrow.parquet as pq

    found = {table: {re.sub(r".*/part-|\.parquet$", "", path) for path in parts(data_set, table)} for table in TABLES}
    for table in TABLES:
        for path in parts(data_set, table):
            check_types(table, pq.read_table(path, partitioning=None).schema)
    for table in TABLES:
        lacks = found["crashes"] - found[table]
        assert not lacks, f"{table} lacks {lacks}"


def same(one, other):
    whole(one)
    for table in TABLES:
        # A part for each crash, with the rows in the same order.
        names = [[re.sub(r".*/day=", "", path) for path in parts(each, table)] for each in (one, other)]
        assert names[0] == names[1], f"{table}: {names[0]} {names[1]}"
        assert by_pyarrow(one, table) == by_pyarrow(other, table), f"{table}: two data sets differ"
    left = [path for path in glob.glob(f"{one}/v1/*/*/.*")]
    assert not left, f"left: {left}"


def fleet(data_set, truth_file):
    """Hosts, times and signatures of made crashes, and questions over all of them."""
    import csv
    import duckdb

    whole(data_set)
    with open(truth_file, encoding="utf-8") as file:
        made = {row["crash_id"]: row for row in csv.DictReader(file)}
    stored = {row["crash_id"]: row for row in rows(data_set, "crashes")}
    lacks = set(made) - set(stored)
    assert not lacks, f"{len(lacks)} crashes are not there: {next(iter(lacks))}"
    of_signature = collections.defaultdict(set)
    for crash_id, row in made.items():
        own = stored[crash_id]
        facts = (own["host"], own["program"].rsplit("/", 1)[-1], own["ts"])
        assert facts == (row["host"], row["program"], int(row["ts"])), f"{crash_id}: {own}"
        of_signature[own["signature"]].add((row["program"], row["file"]))
    groups = collections.Counter((row["program"], row["file"]) for row in made.values())
    assert len(of_signature) == len(groups), f"{len(of_signature)} signatures of {len(groups)} causes"
    assert all(len(causes) == 1 for causes in of_signature.values()), of_signature
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for table in TABLES:
        connection.execute(f"CREATE VIEW {table} AS FROM read_parquet('{data_set}/v1/{table}/*/*.parquet', hive_partitioning = true)")
    connection.execute(f"CREATE TABLE made AS FROM read_csv('{truth_file}')")
    questions = {
        "signatures": "SELECT signature, count(*), count(DISTINCT host), min(ts) FROM crashes SEMI JOIN made USING (crash_id) GROUP BY ALL",
        "days": "SELECT strftime(time, '%Y-%m-%d') = day::VARCHAR, count(*) FROM crashes SEMI JOIN made USING (crash_id) GROUP BY ALL",
        "last events": "SELECT signature, events.name, count(*) FROM events JOIN crashes USING (crash_id) WHERE before_end_ns < 1000000 GROUP BY ALL",
        "lossy": "SELECT count(*) FROM crashes WHERE has_losses",
    }
    answers = {}
    for name, question in questions.items():
        begun = time.monotonic()
        answers[name] = connection.execute(question).fetchall()
        print(f"  {name:<12} {time.monotonic() - begun:>7.3f} s, {len(answers[name])} rows")
    expected = collections.defaultdict(list)
    for row in made.values():
        expected[(row["program"], row["file"])].append(row)
    for signature, count, hosts, since in answers["signatures"]:
        own = expected[next(iter(of_signature[signature]))]
        assert count == len(own) and hosts == len({row["host"] for row in own}), signature
        assert since == min(int(row["ts"]) for row in own), signature
    assert answers["days"] == [(True, len(made))], answers["days"]
    count = sum(size(path) for table in TABLES for path in parts(data_set, table))
    print(f"  {len(stored)} crashes, {len(of_signature)} signatures, {count / len(stored):.0f} bytes a crash")


def measured(command, stdout=None):
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    ran = subprocess.run(command, stdout=stdout or subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    assert ran.returncode == 0, f"{command}: {ran.stderr.decode()}"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - begun


def size(path):
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(file) for file in glob.glob(f"{path}/**", recursive=True) if os.path.isfile(file))


def figures(folder, *paths):
    """Rows a CPU second, and bytes an event."""
    import pyarrow.parquet as pq

    head = f"{'source':<12} {'events':>9} | rows a CPU second, millions: {'arrow':>7} {'parquet':>7} {'ingest':>7} {'json':>7} | "
    print(head + f"bytes an event: {'arrow':>6} {'parquet':>7} {'data set':>8} {'json':>6} {'CTF, zstd -3':>12}")
    for path in paths:
        name = os.path.basename(path)
        out = {kind: f"{folder}/{name}.{kind}" for kind in ("arrow", "parquet", "jsonl")}
        cpu = {kind: measured([LASTWORDS, "convert", path, "-o", out[kind], "--to", kind.replace("jsonl", "json")])[0]
               for kind in out}
        cpu["ingest"] = measured([LASTWORDS, "ingest", path, "--into", f"{folder}/{name}.set"])[0]
        count = pq.ParquetFile(out["parquet"]).metadata.num_rows
        ctf = path if os.path.isfile(f"{path}/metadata") else f"{folder}/{name}.ctf"
        if ctf != path:
            measured([LASTWORDS, "recover", path, "-o", ctf, "--to", "ctf"])
        with open(f"{folder}/{name}.tar.zst", "wb") as file:
            tar = subprocess.Popen(["tar", "-C", ctf, "-cf", "-", "."], stdout=subprocess.PIPE)
            subprocess.run(["zstd", "-q", "-3", "-c"], stdin=tar.stdout, stdout=file, check=True)
        rate = {kind: count / cpu[kind] / 1e6 for kind in cpu}
        bytes_of = {kind: size(out[kind]) / count for kind in out}
        set_bytes, packed = size(f"{folder}/{name}.set/v1") / count, size(f"{folder}/{name}.tar.zst") / count
        print(f"{name:<12} {count:>9} | {'':<29}{rate['arrow']:>7.2f} {rate['parquet']:>7.2f} {rate['ingest']:>7.2f} {rate['jsonl']:>7.2f} | "
              f"{'':<15} {bytes_of['arrow']:>6.1f} {bytes_of['parquet']:>7.1f} {set_bytes:>8.1f} {bytes_of['jsonl']:>6.1f} {packed:>12.1f}")


def main():
    part, words = sys.argv[1], sys.argv[2:]
    {"values": values, "whole": whole, "same": same, "fleet": fleet, "figures": figures}[part](*words)


main()
