"""A counter on the official Python SDK: `counter_sdk.py stdio`, or `counter_sdk.py http [PORT]`, which
prints its URL when it listens. Both eras: one count per process over stdio and for all modern clients,
one per session for legacy clients over HTTP."""

import sys
from collections import Counter

from mcp.server.mcpserver import Context, MCPServer

from listen import listen

server = MCPServer("counter-python")
counts: Counter[str | None] = Counter()


@server.tool()
def count(context: Context) -> str:
    """Adds one and says the number."""
    session = (context.headers or {}).get("mcp-session-id")
    counts[session] += 1
    return str(counts[session])


if sys.argv[1:2] == ["http"]:
    listen(server.streamable_http_app(), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
else:
    server.run("stdio")
