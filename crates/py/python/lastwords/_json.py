"""Rows of answers as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def to_json(value: Any) -> Any:
    """Return a value of DuckDB or Spark as one that JSON has."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case bytes():
            return value.hex()
        case list() | tuple():
            return [to_json(one) for one in value]
        case dict():
            return {str(key): to_json(one) for key, one in value.items()}
        case _:
            return str(value)


def line(columns: Sequence[str], row: Sequence[Any]) -> str:
    """Return a row as an object of JSON on one line."""
    values = [to_json(value) for value in row]
    return json.dumps(dict(zip(columns, values, strict=True)), ensure_ascii=True)
