"""The view of an event of a data set: the fields in its JSON as columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import duckdb

HEAD = ("crash_id", "trace", "channel", "ts", "time", "before_end_ns", "cpu", "tid", "pid", "comm")

_INTEGERS = ("BIGINT", "UBIGINT", "HUGEINT")
_MOST = 2**63 - 1


def typed_view(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    quoted: Callable[[str], str],
    literal: Callable[[str], str],
) -> str | None:
    """Return the SELECT of the view of an event; None if the data set has no such event.

    The types are those that hold all its values, so all its rows are read.
    """
    rows = f"FROM events WHERE name = {literal(name)}"
    found = connection.execute(f"SELECT json_group_structure(fields::JSON) {rows}").fetchone()
    structure = found[0] if found else None
    if structure is None:
        return None
    fields = json.loads(structure)
    fields = fields if isinstance(fields, dict) else {}
    pointers = {field: _pointer(field) for field in fields}
    tests = [_test(kind, *_parts(pointers[field], literal)) for field, kind in fields.items()]
    narrowest = (
        connection.execute(f"SELECT {', '.join(tests)} {rows}").fetchone() if tests else None
    )
    columns = list(HEAD)
    selected = [quoted(column) for column in HEAD]
    for (field, kind), narrow in zip(fields.items(), narrowest or (), strict=True):
        for label, value in _values(kind, narrow, pointers[field], literal):
            column = field + label
            while column.lower() in (own.lower() for own in columns):
                column = "f_" + column
            columns.append(column)
            selected.append(f"{value} AS {quoted(column)}")
    return f"SELECT {', '.join(selected)} {rows}"


def _pointer(field: str) -> str:
    """The JSON pointer to a member."""
    return "/" + field.replace("~", "~0").replace("/", "~1")


def _parts(pointer: str, literal: Callable[[str], str]) -> tuple[str, str]:
    """A member as JSON, and as text."""
    return f"(fields->{literal(pointer)})", f"(fields->>{literal(pointer)})"


def _is_enumeration(kind: Any) -> bool:
    return isinstance(kind, dict) and set(kind) == {"value", "label"}


def _test(kind: Any, value: str, text: str) -> str:
    """Returns an expression of the narrowest type that holds all values of a field."""
    if _is_enumeration(kind):
        text = f"({value}->>'/value')"
        kind = "UBIGINT"
    if kind in _INTEGERS:
        wide = "HUGEINT" if kind == "HUGEINT" else "UBIGINT"
        return (
            f"CASE WHEN max(TRY_CAST({text} AS UBIGINT)) > {_MOST} THEN '{wide}' ELSE 'BIGINT' END"
        )
    if kind == "JSON":
        # Texts of which some are not UTF-8; floats of which some are not finite.
        is_text = f"json_type({value}) IN ('VARCHAR', 'NULL') OR ({value}->'/bytes') IS NOT NULL"
        is_float = f"json_type({value}) = 'DOUBLE' OR {text} IN ('NaN', 'inf', '-inf')"
        return (
            f"CASE WHEN bool_and({is_float}) THEN 'DOUBLE' WHEN bool_and({is_text}) THEN 'TEXT' "
            "ELSE 'JSON' END"
        )
    return _only(kind)


def _only(kind: Any) -> str:
    """The type of a field that has only one, as a literal."""
    match kind:
        case "DOUBLE" | "BOOLEAN":
            return f"'{kind}'"
        case "VARCHAR" | "NULL":
            return "'TEXT'"
        case _:
            return "'JSON'"


def _values(
    kind: Any, narrow: str, pointer: str, literal: Callable[[str], str]
) -> list[tuple[str, str]]:
    """Returns the columns of a field: the end of the name, and the expression of each."""
    value, text = _parts(pointer, literal)
    if _is_enumeration(kind):
        return [
            ("", f"TRY_CAST(({value}->>'/value') AS {narrow})"),
            ("_label", f"({value}->>'/label')"),
        ]
    match narrow:
        case "TEXT":
            return [("", f"CASE json_type({value}) WHEN 'VARCHAR' THEN {text} END")]
        case "JSON":
            return [("", f"CAST({value} AS VARCHAR)")]
        case _:
            return [("", f"TRY_CAST({text} AS {narrow})")]
