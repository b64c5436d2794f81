"""Prints rows as a table for people. Characters that control a terminal are escaped."""

from __future__ import annotations

import unicodedata
from typing import Any, TextIO

from . import Result

_WIDEST = 80
_SAMPLE = 1000


def plain(value: Any) -> str:
    """Return a cell as text without characters that control a terminal or reorder a line."""
    if value is None:
        return "NULL"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(c) for c in text)


def _shown(c: str) -> str:
    is_unsafe = unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return c.encode("unicode_escape", "surrogatepass").decode("ascii") if is_unsafe else c


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def _fit(text: str, width: int, is_number: bool) -> str:
    while _width(text) > width:
        text = text[: max(width - 1, 0)] + "…" if not text.endswith("…") else text[:-2] + "…"
    blanks = " " * (width - _width(text))
    return blanks + text if is_number else text + blanks


def print_table(result: Result, most: int, out: TextIO) -> None:
    """Print at most this number of rows. Long cells are cut: `--format json` has them whole."""
    if not result.columns:
        return
    rows = result.rows(most + 1)
    head = [row for row, _ in zip(rows, range(_SAMPLE), strict=False)]
    cells = [[plain(cell) for cell in row] for row in head]
    names = [plain(name) for name in result.columns]
    widths = [
        min(max(_width(cell) for cell in column), _WIDEST)
        for column in zip(names, *cells, strict=True)
    ]
    numbers = [
        isinstance(next((c for c in column if c is not None), None), (int, float))
        for column in zip(*head, strict=True)
    ] or [False] * len(names)

    def show(row: list[str]) -> None:
        shown = [
            _fit(cell, width, number)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        ]
        out.write("  ".join(shown).rstrip() + "\n")

    show(names)
    out.write("  ".join("─" * width for width in widths) + "\n")
    shown = 0
    for row in (*cells, *([plain(cell) for cell in row] for row in rows)):
        if shown == most:
            out.write(f"… more than {most} rows: --rows, --format csv or json\n")
            return
        show(row)
        shown += 1
    out.write(f"({shown} {'row' if shown == 1 else 'rows'})\n")
