"""Crashes of a made fleet, ingested by the workers of a Spark cluster on this machine.

A master and workers of Spark run as processes of their own. `python -m lastwords.fleet` ingests the
crashes on them, one worker is killed in the middle, and Spark SQL answers the ten questions. The
data set must have the rows that one run of `lastwords ingest` writes, each crash once, and DuckDB of
`lastwords.sql` must give the same answers.

    python fleet.py PROGRAM INPUTS TRUTH.csv PLACE WORKERS... (such as 1 2 4 2x: with x, one is killed)
"""

import collections
import contextlib
import csv
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pyspark
from lastwords._json import line
from lastwords.questions import questions
from lastwords.sql import Database

# The made data set in which each question has an answer.
import test_questions
from same import check_same, ingest

SPARK = Path(pyspark.__file__).parent
ENVIRONMENT = {
    **os.environ,
    "SPARK_HOME": str(SPARK),
    # Else an executor may bind to another address than that which the master tells.
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_PUBLIC_DNS": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "TZ": "America/St_Johns",
}
# Seconds that a part of the cluster may take to begin: on a machine that does much else, minutes.
PATIENCE = 1200


def until(what, is_done, seconds=PATIENCE):
    """Waits until something is so, and fails if it takes far too long."""
    end = time.monotonic() + seconds
    while not (found := is_done()):
        assert time.monotonic() < end, f"no {what} in {seconds} s"
        time.sleep(0.1)
    return found


def children(pid):
    """The processes that descend from one."""
    parents = collections.defaultdict(list)
    for stat in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = Path(stat).read_text()
            parents[int(text.rsplit(")", 1)[1].split()[1])].append(int(text.split()[0]))
    found, left = [], [pid]
    while left:
        own = parents[left.pop()]
        found += own
        left += own
    return found


def memory(pids):
    """The bytes that processes have for themselves, with their share of what is common."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(re.search(r"^Pss: +(\d+)", text, re.MULTILINE)[1]) << 10
    return total


class Cluster:
    """A master, and workers with a CPU each."""

    def __init__(self, place, workers):
        self.place, self.workers, self.processes, self.peak = place, workers, [], 0
        place.mkdir(parents=True)

    def begin(self):
        log = self.place / "master.log"
        self.start("master.Master", log, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        pattern = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        self.url = until("master", lambda: pattern.search(log.read_text()))[1]
        for number in range(self.workers):
            words = ["--host", "127.0.0.1", "--cores", "1", "--memory", "800m", "--webui-port", "0"]
            folder = self.place / f"worker-{number}"
            self.start("worker.Worker", folder.with_suffix(".log"), *words, "--work-dir", folder, self.url)
        until("worker", lambda: log.read_text().count("Registering worker") >= self.workers)

    def start(self, name, log, *words):
        command = [SPARK / "bin/spark-class", f"org.apache.spark.deploy.{name}", *words]
        with open(log, "wb") as file:
            self.processes.append(
                subprocess.Popen(
                    list(map(str, command)),
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    env={**ENVIRONMENT, "SPARK_DAEMON_MEMORY": "256m"},
                )
            )

    def kill_one(self):
        """Kills the last worker and the executor that it has started, as if their machine died."""
        worker = self.processes.pop()
        executors = [pid for pid in children(worker.pid) if "java" in os.readlink(f"/proc/{pid}/exe")]
        for pid in [worker.pid, *executors]:
            os.kill(pid, signal.SIGKILL)
        worker.wait()
        return len(executors)

    def sample(self, driver):
        """Notes the memory of the cluster and of a driver."""
        pids = [own.pid for own in [*self.processes, driver]]
        self.peak = max(self.peak, memory([*pids, *(child for pid in pids for child in children(pid))]))

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait()


def lines(path):
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def run_fleet(cluster, program, folders, into, output, kill_after=None):
    """Runs the documented command, and kills a worker when the list has so many inputs. Returns what
    the command printed."""
    events = cluster.place / f"events-{output.stem}"
    events.mkdir()
    settings = {
        "spark.executor.memory": "700m",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    command = [sys.executable, "-m", "lastwords.fleet", *folders, "--into", into, "--master", cluster.url]
    command += ["--program", program, "-o", output]
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    log = output.with_suffix(".log")
    with open(log, "wb") as errors:
        driver = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=errors, env=ENVIRONMENT, text=True)
    said = []
    reader = threading.Thread(target=lambda: said.extend(driver.stdout))
    reader.start()
    executors = None
    while driver.poll() is None:
        if kill_after is not None and executors is None and lines(into / "ingest.jsonl") >= kill_after:
            executors = cluster.kill_one()
        cluster.sample(driver)
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(0.2)
    reader.join()
    # Status 1: some inputs cannot be read, and are listed.
    assert driver.returncode == (1 if folders and lines(into / "dead-letters.jsonl") else 0), log.read_text()[-6000:]
    if kill_after is not None:
        assert executors == 1, f"{executors} executors killed"
        told = [json.loads(text) for path in events.iterdir() if path.is_file() for text in path.read_text().splitlines()]
        removed = [own for own in told if own["Event"] == "SparkListenerExecutorRemoved"]
        lost = [own for own in told if own.get("Task End Reason", {}).get("Reason") == "ExecutorLostFailure"]
        assert removed and lost, "no task was lost with the worker"
        said.append(f"a worker killed after {kill_after} inputs: {len(lost)} tasks lost and run again\n")
    return "".join(said)


def check_answers(data_set, output):
    """Spark has given the answers of DuckDB. Returns the number of rows of each question."""
    spark = collections.defaultdict(list)
    for text in output.read_text().splitlines():
        row = json.loads(text)
        spark[row.pop("question")].append(json.dumps(row))
    database = Database([data_set])
    counts = {}
    for name in questions():
        result = database.query(f"SELECT * FROM {name}")
        own = [line(result.columns, row) for row in result.rows()]
        counts[name] = len(own)
        # Rows that the question does not order may come in any order.
        both = [collections.Counter(own), collections.Counter(spark[name])]
        assert both[0] == both[1], f"{name}: DuckDB {list((both[0] - both[1]))[:3]}, Spark {list((both[1] - both[0]))[:3]}"
    database.close()
    return counts


def check_truth(data_set, truth):
    """Each crash that was made is there once."""
    with open(truth, encoding="utf-8") as file:
        made = [row["crash_id"] for row in csv.DictReader(file)]
    ids = duckdb.execute(f"SELECT crash_id FROM read_parquet('{data_set}/v1/crashes/*/*.parquet')").fetchall()
    count = collections.Counter(own for (own,) in ids)
    assert set(made) <= set(count) and max(count.values()) == 1, "a crash is missing, or there twice"
    return len(count)


def main(program, inputs, truth, place, *runs):
    inputs, place = Path(inputs), Path(place)
    # Crashes that are there twice.
    named = sorted(inputs.iterdir())
    for path in named[:: max(1, len(named) // 5)]:
        copy = inputs / f"again-{path.name}"
        (shutil.copytree if path.is_dir() else shutil.copy2)(path, copy)
    count = len(list(inputs.iterdir()))
    alone = place / "alone"
    begin = time.monotonic()
    ingest(program, alone, inputs)
    seconds = time.monotonic() - begin
    print(f"fleet: {count} inputs by one run of lastwords in {seconds:.1f} s, {count / seconds:.1f} a second", flush=True)
    for run in runs:
        workers, is_killed = int(run.rstrip("x")), run.endswith("x")
        data_set, output = place / f"set-{run}", place / f"answers-{run}.jsonl"
        with Cluster(place / f"cluster-{run}", workers) as cluster:
            print(f"fleet: {workers} workers{', one is killed' if is_killed else ''}")
            print(run_fleet(cluster, program, [inputs], data_set, output, count // 4 if is_killed else None), end="")
            print(f"{cluster.peak >> 20} MB of memory at most: master, workers, driver and programs")
            # What a killed worker left is removed by the next run, and nothing is read again.
            said = ingest(program, data_set, inputs)
            crashes = check_truth(data_set, truth)
            check_same(data_set, alone)
            rows = check_answers(data_set, output)
            print(f"{crashes} crashes, each once; DuckDB has the same {sum(rows.values())} rows of answers; again: {said}", end="", flush=True)
    made = test_questions.write_set(place / "made")
    output = place / "answers-made.jsonl"
    with Cluster(place / "cluster-made", 1) as cluster:
        run_fleet(cluster, program, [], made, output)
    rows = check_answers(made, output)
    assert all(rows.values()), f"a question without an answer: {rows}"
    print(f"fleet: the data set of the tests: all {len(rows)} questions have the answers of DuckDB")


if __name__ == "__main__":
    main(*sys.argv[1:])
