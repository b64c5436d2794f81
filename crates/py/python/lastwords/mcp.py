"""`lastwords mcp`: crashes for assistants, by the Model Context Protocol on stdin and stdout.

The server reads only what is named on its command line, and writes nothing. Limits and the form of
answers are in `lastwords._tools`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from lastwords import __version__
from lastwords._tools import NOTE, Limits, ToolError, run

INSTRUCTIONS = (
    "Reads the last events of programs and kernels that died. Begin with `why`; `open` shows what an "
    "input holds; `events` shows its last events; `sql` queries inputs, or a data set of many crashes "
    "(tables events, crashes, losses, traces; a view for each event, such as sched_switch, with its "
    f"fields as columns). Times are nanoseconds. {NOTE}"
)


def server(limits: Limits) -> Any:
    """Return the server, which is not started."""
    import anyio.to_thread
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError as Refused
    from mcp.types import ToolAnnotations

    made = MCPServer(
        "lastwords", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    reads = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)

    async def call(tool: str, arguments: dict[str, Any]) -> str:
        try:
            return await anyio.to_thread.run_sync(lambda: run(tool, arguments, limits))
        except ToolError as error:
            raise Refused(str(error)) from None

    @made.tool(name="open", annotations=reads, structured_output=False)
    async def open_input(path: str) -> str:
        """Show what an input holds: its traces, crashes, losses, and names of events."""
        return await call("open", {"path": path})

    @made.tool(annotations=reads, structured_output=False)
    async def why(path: str) -> str:
        """Show what died, when, why, and with which evidence."""
        return await call("why", {"path": path})

    @made.tool(annotations=reads, structured_output=False)
    async def events(
        path: str,
        names: list[str] = [],  # noqa: B006 (the schema shows it)
        cpus: list[int] = [],  # noqa: B006
        since_ns: int | None = None,
        until_ns: int | None = None,
        last: int = 50,
        filter: str | None = None,
    ) -> str:
        """Show the last events of an input that match.

        names: globs for provider:name or the name. since_ns, until_ns: nanoseconds since the epoch.
        last: at most this number, and at most 500. filter: an expression such as
        `prev_prio < 100 && comm ~ "kworker/*"`.
        """
        return await call(
            "events",
            {
                "path": path,
                "names": names,
                "cpus": cpus,
                "since_ns": since_ns,
                "until_ns": until_ns,
                "last": last,
                "filter": filter,
            },
        )

    @made.tool(annotations=reads, structured_output=False)
    async def sql(paths: list[str], statement: str, rows: int = 100) -> str:
        """Run one SELECT of DuckDB over inputs, or over data sets of `lastwords ingest`.

        Tables: events, crashes, losses, traces; a view for each event. rows: at most 500.
        """
        return await call("sql", {"paths": paths, "statement": statement, "rows": rows})

    return made


def main(words: Sequence[str] | None = None) -> int:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(
        prog="lastwords mcp",
        description="Serve crashes to an assistant, by the Model Context Protocol on stdin and stdout. "
        "Only the paths that are named can be read.",
    )
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="inputs, data sets, or folders with them"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=float,
        default=30,
        help="stop a call after this time (default: 30)",
    )
    parser.add_argument(
        "--memory",
        metavar="MB",
        type=int,
        default=1024,
        help="the most memory that SQL may take (default: 1024)",
    )
    for option, what in (("--redact", "hide the values"), ("--redact-hash", "hash the values")):
        parser.add_argument(
            option,
            metavar="GLOB",
            action="append",
            default=[],
            help=f"{what} of fields of inputs: FIELD or EVENT/FIELD; may be repeated",
        )
    parsed = parser.parse_args(words)
    limits = Limits(
        tuple(parsed.paths),
        parsed.timeout,
        parsed.memory << 20,
        tuple(parsed.redact),
        tuple(parsed.redact_hash),
    )
    try:
        made = server(limits)
    except ImportError as error:
        print(
            f"lastwords mcp: {error}: pip install 'lastwords[mcp]', or pip install mcp duckdb",
            file=sys.stderr,
        )
        return 1
    made.run("stdio")
    return 0


if __name__ == "__main__":
    sys.exit(main())
