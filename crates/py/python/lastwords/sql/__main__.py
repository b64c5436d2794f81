"""`lastwords sql`: the command line of `lastwords.sql`."""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from lastwords._errors import Error
from lastwords._json import line
from lastwords.questions import questions

from . import Database, Result, SqlError
from ._shell import shell
from ._table import print_table

_UNITS = {"": 1, "ms": 0.001, "s": 1, "min": 60, "h": 3600}


def duration(text: str) -> float:
    """Return seconds: `30`, `500ms`, `2min`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|h|)", text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: give 30s, 500ms, 2min or 1h")
    return float(found[1]) * _UNITS[found[2]]


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="lastwords sql",
        description="Query inputs and data sets by SQL. Tables: events, crashes, losses, traces, "
        "a view for each event (sched_switch), and one for each question (--questions). Without "
        "-c and -f, statements are read from stdin; on a terminal, with history and completion.",
    )
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar="INPUT",
        help="inputs that `lastwords report` takes, or data sets of `lastwords ingest`",
    )
    parser.add_argument(
        "-c",
        "--command",
        metavar="SQL",
        action="append",
        default=[],
        help="run these statements; may be repeated",
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="run the statements in a file")
    parser.add_argument(
        "--format",
        choices=["table", "csv", "json", "parquet"],
        help="the format of rows: table, csv, json (an object on each line), parquet (with -o); default: by the ending of -o, or table",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the rows into a file, which appears when it is complete",
    )
    parser.add_argument(
        "--rows",
        metavar="N",
        type=int,
        default=1000,
        help="print at most N rows as a table (default: 1000)",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        default="1GB",
        help="the most memory that DuckDB may take (default: 1GB)",
    )
    parser.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration,
        help="stop a statement after this time: 30s, 2min",
    )
    parser.add_argument(
        "--redact",
        metavar="GLOB",
        action="append",
        default=[],
        help="hide the values of fields: FIELD or EVENT/FIELD; may be repeated",
    )
    parser.add_argument(
        "--redact-hash",
        metavar="GLOB",
        action="append",
        default=[],
        help="hide the values of fields, so that equal values stay equal",
    )
    parser.add_argument(
        "--questions",
        action="store_true",
        help="list the views that answer the questions of the book, and exit",
    )
    parsed = parser.parse_args(words)
    if not parsed.inputs and not parsed.questions:
        parser.error("name at least one input or data set")
    endings = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
    ending = endings.get(Path(parsed.output).suffix) if parsed.output else None
    parsed.format = parsed.format or ending or "table"
    if parsed.format == "parquet" and not parsed.output:
        parser.error("--format parquet needs -o FILE")
    return parsed


def main(words: Sequence[str] | None = None) -> int:
    """Run `lastwords sql`, and return its exit status: 1 if a statement failed."""
    parsed = arguments(words)
    try:
        if parsed.questions:
            for name, select in questions().items():
                print(f"{name:<24} {select.splitlines()[0].removeprefix('-- ')}")
            return 0
        return run(parsed)
    except (Error, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader of a pipe went away, as in `lastwords sql … | head`.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"lastwords sql: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(parsed: argparse.Namespace) -> int:
    """Open the inputs, and run the statements."""
    with _beside(parsed.output) as partial:
        database = Database(
            parsed.inputs,
            memory=parsed.memory,
            timeout=parsed.timeout,
            output=partial,
            redact=parsed.redact,
            redact_hash=parsed.redact_hash,
        )
        if database.recording is not None:
            for failure in database.recording.failures:
                print(f"lastwords sql: {failure.severity}: {failure.why}", file=sys.stderr)
        texts = list(parsed.command)
        if parsed.file:
            texts.append(Path(parsed.file).read_text("utf-8"))
        if not texts and sys.stdin.isatty():
            shell(database, lambda result: print_table(result, parsed.rows, sys.stdout))
            return 0
        batch(database, texts or [sys.stdin.read()], parsed, partial)
        if partial is not None:
            os.replace(partial, parsed.output)
    return 0


@contextlib.contextmanager
def _beside(output: str | None) -> Iterator[str | None]:
    """Makes an empty file beside the output; it is removed unless it was renamed."""
    if output is None:
        yield None
        return
    folder, name = os.path.split(os.path.abspath(output))
    handle, partial = tempfile.mkstemp(prefix=f".{name}.", suffix=".partial", dir=folder)
    os.fchmod(handle, 0o666 & ~_umask())
    os.close(handle)
    try:
        yield partial
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)


def _umask() -> int:
    own = os.umask(0o077)
    os.umask(own)
    return own


def batch(
    database: Database, texts: Sequence[str], parsed: argparse.Namespace, partial: str | None
) -> None:
    """Run statements, and write the rows of each."""
    statements = [statement for text in texts for statement in database.statements(text)]
    if not statements:
        raise SqlError("no statement: -c SQL, -f FILE, or stdin")
    if parsed.format == "parquet" and partial is not None:
        for statement in statements[:-1]:
            database.query(statement)
        return database.write_parquet(statements[-1], partial)
    with contextlib.ExitStack() as stack:
        out: TextIO = sys.stdout
        if partial is not None:
            out = stack.enter_context(open(partial, "w", encoding="utf-8", newline=""))
        for statement in statements:
            write(database.query(statement), parsed.format, parsed.rows, out)
        out.flush()
    return None


def write(result: Result, form: str, most: int, out: TextIO) -> None:
    """Write rows in a format."""
    if not result.columns:
        return
    match form:
        case "csv":
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(result.columns)
            writer.writerows(_cells(row) for row in result.rows())
        case "json":
            for row in result.rows():
                out.write(line(result.columns, row) + "\n")
        case _:
            print_table(result, most, out)


def _cells(row: tuple[Any, ...]) -> list[Any]:
    return ["true" if cell is True else "false" if cell is False else cell for cell in row]


if __name__ == "__main__":
    sys.exit(main())
