"""Crashes of a fleet: the workers of a Spark cluster ingest them, and Spark SQL answers questions.

::

    python -m lastwords.fleet /var/crash --into /shared/crashes --master spark://head:7077

Each entry of the folders is an input. A task of Spark runs `lastwords ingest` for some of them, so a
worker needs that program and the folders, and nothing of this package. The data set is one folder
for all workers. A task that is run again, because its worker died, finds in the data set's list what
was added before. Without folders, the data set is only asked.

Needs Spark 4 (`pip install pyspark`) and Java 17 or newer. In a job of Spark, `ingest`, `add_tables`
and `ask` take its session. `entries`, `batches` and `task` need no Spark: Dask and Ray run a task, too.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from lastwords._errors import ArgumentError, Error
from lastwords._json import line
from lastwords.questions import TABLES, questions

# The columns that are timestamps.
_TIMES = ("time", "start_time")
# Most inputs of a task, unless their number is given.
_MOST = 64


class FleetError(Error):
    """The inputs cannot be ingested, or a question cannot be answered."""


@dataclass(frozen=True)
class Ingested:
    """What a run of the workers has done."""

    inputs: int
    tasks: int
    seconds: float
    peak_bytes: int
    """The most memory that a program `lastwords` had."""


@dataclass(frozen=True)
class Answer:
    """The answer to a question. `rows` are in the order that the question gives them."""

    question: str
    columns: list[str]
    rows: list[tuple[Any, ...]]
    seconds: float


def session(master: str | None = None, conf: Sequence[str] = ()) -> Any:
    """Return a session of Spark.

    master: such as `spark://head:7077`; None for what Spark's configuration names, else all CPUs of
        this machine.
    conf: settings, `KEY=VALUE`.

    Raises `FleetError` if PySpark is not installed.
    """
    try:
        sql = importlib.import_module("pyspark.sql")
    except ImportError as error:
        raise FleetError(f"PySpark is not installed: pip install pyspark ({error})") from None
    builder = sql.SparkSession.builder.appName("lastwords")
    if master is not None:
        builder = builder.master(master)
    for setting in conf:
        key, _, value = setting.partition("=")
        builder = builder.config(key, value)
    return builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()


def entries(folders: Sequence[str | Path]) -> list[str]:
    """Return the inputs in folders: all their entries but hidden ones. A file is an input itself."""
    found: list[Path] = []
    for folder in map(Path, folders):
        own = sorted(folder.iterdir()) if folder.is_dir() else [folder]
        found += [path for path in own if not path.name.startswith(".")]
    return [str(path.absolute()) for path in found]


def ingest(
    spark: Any,
    inputs: Sequence[str],
    into: str | Path,
    *,
    program: str = "lastwords",
    inputs_per_task: int | None = None,
) -> Ingested:
    """Add inputs to a data set, by the workers.

    inputs: paths on the workers, such as `entries` returns.
    into: the folder of the data set on the workers.
    program: the program `lastwords` on the workers.
    inputs_per_task: by default a quarter of what each CPU gets, at most 64.

    What cannot be read is in `dead-letters.jsonl` of the data set.

    Raises `FleetError` if a task fails more often than Spark tries it.
    """
    context = spark.sparkContext
    if inputs_per_task is None:
        inputs_per_task = max(1, min(_MOST, len(inputs) // (4 * context.defaultParallelism)))
    tasks = batches(inputs, inputs_per_task)
    run = task(program, into)
    begin = time.monotonic()
    try:
        peaks = context.parallelize(tasks, max(1, len(tasks))).map(run).collect()
    except Exception as error:
        raise FleetError(_first_lines(error)) from None
    return Ingested(len(inputs), len(tasks), time.monotonic() - begin, max(peaks, default=0))


def batches(inputs: Sequence[str], size: int) -> list[list[str]]:
    """Return the inputs in lists of at most `size`, one for each task."""
    return [list(inputs[at : at + size]) for at in range(0, len(inputs), size)]


def task(program: str, into: str | Path) -> Callable[[list[str]], int]:
    """Return a function that adds inputs to a data set, and returns the memory that this took.

    program: the program `lastwords` on the worker that calls the function.
    into: the folder of the data set on the worker.

    A scheduler sends the function to its workers, which need not have this package. It raises
    `RuntimeError` if the data set cannot be written. An input that cannot be read is no error: it is
    in `dead-letters.jsonl` of the data set.
    """
    target = str(Path(into).absolute())

    def run(paths: list[str]) -> int:
        import resource
        import subprocess

        command = [program, "ingest", "--into", target, *paths]
        ran = subprocess.run(command, capture_output=True, check=False)
        # Status 1 with the counts of the run on stdout: an input cannot be read, and is listed.
        if ran.returncode not in (0, 1) or not ran.stdout:
            said = ran.stderr.decode(errors="replace")[-2000:]
            raise RuntimeError(f"{program} ingest: status {ran.returncode}: {said}")
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024

    return run


def _first_lines(error: Exception) -> str:
    """What Spark says of an error, without the stacks of Java and Python."""
    text = str(error)
    own = [text_line for text_line in text.splitlines() if "RuntimeError: " in text_line]
    return own[-1].strip() if own else "\n".join(text.splitlines()[:4])


def add_tables(spark: Any, data_set: str | Path) -> None:
    """Make temporary views of the tables `events`, `crashes`, `losses` and `traces` of a data set.

    `time` is UTC, without a zone, as in `lastwords.sql`.
    """
    reader = spark.read.option("mergeSchema", "true")
    for table in TABLES:
        frame = reader.parquet(str(Path(data_set).absolute() / "v1" / table))
        times = [name for name in _TIMES if name in frame.columns]
        frame = frame.withColumns({name: frame[name].cast("timestamp_ntz") for name in times})
        frame.createOrReplaceTempView(table)


def ask(spark: Any, names: Sequence[str] = ()) -> Iterator[Answer]:
    """Answer questions of `lastwords.questions`, all by default, over the views of `add_tables`."""
    for name, select in questions().items():
        if names and name not in names:
            continue
        begin = time.monotonic()
        try:
            frame = spark.sql(select)
            rows = [tuple(row) for row in frame.collect()]
        except Exception as error:
            raise FleetError(f"{name}: {_first_lines(error)}") from None
        yield Answer(name, list(frame.columns), rows, time.monotonic() - begin)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lastwords.fleet",
        description="Ingest crashes by the workers of a Spark cluster, and ask the data set.",
    )
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="each entry is an input")
    parser.add_argument("--into", required=True, metavar="DATASET", help="the data set")
    parser.add_argument("--master", metavar="URL", help="the cluster: spark://HOST:7077, local[2]")
    parser.add_argument(
        "--program", default="lastwords", metavar="PATH", help="the program on the workers"
    )
    parser.add_argument(
        "--inputs-per-task", type=int, metavar="N", help=f"inputs of a task (at most {_MOST})"
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark"
    )
    parser.add_argument(
        "--question",
        action="append",
        default=[],
        metavar="NAME",
        choices=[*questions(), "none"],
        help="a question to ask, or none; may be repeated (default: all)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write all rows as JSON lines")
    parsed = parser.parse_args(words)
    if parsed.inputs_per_task is not None and parsed.inputs_per_task < 1:
        parser.error("--inputs-per-task: at least 1")
    return parsed


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status: 1 if an input or a question failed."""
    parsed = arguments(words)
    try:
        return run(parsed)
    except (Error, OSError) as error:
        print(f"lastwords.fleet: {error}", file=sys.stderr)
        return 1


def run(parsed: argparse.Namespace) -> int:
    """Ingest, ask, and print."""
    inputs = entries(parsed.folders)
    if parsed.folders and not inputs:
        raise ArgumentError(f"{', '.join(parsed.folders)}: no inputs")
    spark = session(parsed.master, parsed.conf)
    with contextlib.ExitStack() as stack:
        stack.callback(spark.stop)
        dead = 0
        if inputs:
            done = ingest(
                spark,
                inputs,
                parsed.into,
                program=parsed.program,
                inputs_per_task=parsed.inputs_per_task,
            )
            dead = dead_letters(parsed.into)
            print(
                f"{parsed.into}: {done.inputs} inputs in {done.seconds:.1f} s by {done.tasks} tasks, "
                f"{done.inputs / done.seconds:.1f} a second, {dead} cannot be read, "
                f"{done.peak_bytes >> 20} MB of memory at most"
            )
        if "none" not in parsed.question:
            out = None
            if parsed.output is not None:
                out = stack.enter_context(open(parsed.output, "w", encoding="utf-8"))
            add_tables(spark, parsed.into)
            for answer in ask(spark, parsed.question):
                print(f"{answer.question:<24} {len(answer.rows):>8} rows {answer.seconds:>8.2f} s")
                _write(answer, out)
    return 1 if dead else 0


def dead_letters(data_set: str | Path) -> int:
    """Return the number of inputs of a data set that cannot be read, and print each with its reason."""
    with open(Path(data_set) / "dead-letters.jsonl", encoding="utf-8") as file:
        found = [json.loads(text) for text in file]
    for own in found:
        print(f"lastwords.fleet: {own['error']}", file=sys.stderr)
    return len(found)


def _write(answer: Answer, out: TextIO | None) -> None:
    if out is not None:
        for row in answer.rows:
            out.write(line(["question", *answer.columns], [answer.question, *row]) + "\n")


if __name__ == "__main__":
    sys.exit(main())
