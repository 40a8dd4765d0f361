"""A server of both eras on the official Python SDK, which asks its client: `dual_sdk.py stdio`, or
`dual_sdk.py http [PORT]`, which prints its URL when it listens."""

import sys
from typing import Annotated

import anyio
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel

from listen import listen

server = MCPServer("dual-python")
counts = {"count": 0, "cancelled": 0}


class Name(BaseModel):
    name: str


def name() -> Elicit[Name]:
    return Elicit("What is your name?", Name)


def verse() -> Sample:
    text = TextContent(type="text", text="Write a verse.")
    return Sample([SamplingMessage(role="user", content=text)], max_tokens=10)


@server.tool()
def count() -> str:
    """Adds one and says the number."""
    counts["count"] += 1
    return str(counts["count"])


@server.tool()
def greet(name: Annotated[Name, Resolve(name)]) -> str:
    """Asks for a name and greets."""
    return f"Hello {name.name}"


@server.tool()
def poem(verse: Annotated[CreateMessageResult, Resolve(verse)]) -> str:
    """Asks the model of the client for a verse."""
    return f"Poem: {verse.content.text}"


@server.tool()
async def steps(context: Context) -> str:
    """Reports its progress."""
    for step in range(1, 4):
        await context.report_progress(step, 3)
    return "done"


@server.tool()
async def wait(context: Context) -> str:
    """Waits until it is cancelled."""
    try:
        await context.report_progress(1, 2)
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        counts["cancelled"] += 1
        raise


@server.tool()
def cancelled() -> str:
    """Says how many calls were cancelled."""
    return str(counts["cancelled"])


if sys.argv[1:2] == ["http"]:
    listen(server.streamable_http_app(), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
else:
    server.run("stdio")
