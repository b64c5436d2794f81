"""The programs of the package, which need more than the package itself."""

from __future__ import annotations

import sys


def sql() -> int:
    """Run `lastwords-sql`."""
    try:
        from lastwords.sql.__main__ import main
    except ImportError as error:
        print(f"lastwords sql: {error}", file=sys.stderr)
        return 1
    return main()


def mcp() -> int:
    """Run `lastwords-mcp`."""
    from lastwords.mcp import main

    return main()
