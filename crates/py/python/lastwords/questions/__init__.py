"""The tables of a data set, and the questions of the book as SQL over them.

The SQL is what DuckDB and Spark have in common, so that both answer the same question: no `arg_max`,
`QUALIFY`, `GROUP BY ALL` or `1_000`, and `NULLS LAST` where it matters. Where several rows could be
the last one, all that a question shows of them orders them: the answers of two engines are equal.
"""

from __future__ import annotations

from importlib import resources

TABLES = ("events", "crashes", "losses", "traces")
# Tables of data sets alone. A data set of an older version may lack them.
MADE_OF_EVENTS = ("slice", "sched", "thread", "process", "log")


def questions() -> dict[str, str]:
    """Return the questions of the package: the name of each view, and its SELECT."""
    files = resources.files("lastwords.questions").iterdir()
    found = {
        file.name[:-4]: file.read_text("utf-8") for file in files if file.name.endswith(".sql")
    }
    return dict(sorted(found.items()))
