"""A counter on FastMCP, kept in the state of its sessions: `counter_fastmcp.py stdio`, or
`counter_fastmcp.py http [PORT]`, which prints its URL when it listens."""

import sys

from fastmcp import Context, FastMCP

from listen import listen

server = FastMCP("counter-fastmcp")


@server.tool
async def count(context: Context) -> str:
    """Adds one and says the number."""
    counted = (await context.get_state("count") or 0) + 1
    await context.set_state("count", counted)
    return str(counted)


if sys.argv[1:2] == ["http"]:
    listen(server.http_app(path="/mcp"), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
else:
    server.run("stdio", show_banner=False)
