"""The prompt of `lastwords sql` on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable

from lastwords.questions import TABLES, questions

from . import Database, Result, SqlError

_WORDS = (
    "SELECT FROM WHERE GROUP BY ORDER LIMIT JOIN USING HAVING QUALIFY DISTINCT count sum avg min max "
    "arg_min arg_max AND OR NOT NULL LIKE ILIKE BETWEEN DESCRIBE SUMMARIZE EXPLAIN OVER PARTITION"
).split()
_HELP = "Statements end with a semicolon. .tables lists tables, events and questions; .quit ends."


def words(database: Database) -> list[str]:
    """Return what can be completed."""
    rows = database.connection.execute(
        "SELECT DISTINCT column_name FROM information_schema.columns"
    )
    columns = [name for (name,) in rows.fetchall()]
    return sorted({*TABLES, *questions(), *database.event_names(), *columns, *_WORDS})


def completer(known: list[str]) -> Callable[[str, int], str | None]:
    """Return a completer of readline: names as they are, keywords also in small letters."""

    def complete(begin: str, state: int) -> str | None:
        found = [word for word in known if word.startswith(begin) or word.startswith(begin.upper())]
        return found[state] if state < len(found) else None

    return complete


def shell(database: Database, show: Callable[[Result], None]) -> None:
    """Read statements until the end of input. The history is in memory only."""
    try:
        import readline
    except ImportError:
        pass
    else:
        readline.set_completer(completer(words(database)))
        readline.set_completer_delims(" \t\n,;()=<>+-*/'\".")
        readline.parse_and_bind("tab: complete")
    print(_HELP)
    text = ""
    while True:
        try:
            text += input("lastwords> " if not text else "      ...> ") + "\n"
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()
            text = ""
            continue
        match text.strip():
            case ".quit" | ".exit":
                return
            case ".help":
                print(_HELP)
            case ".tables":
                print("\n".join([*TABLES, *questions(), *database.event_names()]))
            case "":
                pass
            case _ if not text.rstrip().endswith(";"):
                continue
            case _:
                _run(database, text, show)
        text = ""


def _run(database: Database, text: str, show: Callable[[Result], None]) -> None:
    try:
        for statement in database.statements(text):
            show(database.query(statement))
    except SqlError as error:
        print(error, file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
