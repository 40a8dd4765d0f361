"""A server of both eras on FastMCP, which asks its modern clients: `dual_fastmcp.py stdio`, or
`dual_fastmcp.py http [PORT]`, which prints its URL when it listens."""

import sys

import anyio
from fastmcp import Context, FastMCP
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)

from listen import listen

server = FastMCP("dual-fastmcp")
counts = {"count": 0, "cancelled": 0}


@server.tool
def count() -> str:
    """Adds one and says the number."""
    counts["count"] += 1
    return str(counts["count"])


@server.tool
async def greet(context: Context) -> str | InputRequiredResult:
    """Asks for a name and greets."""
    answers = context.input_responses
    if answers:
        return f"Hello {answers['name'].content['name']}"
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params = ElicitRequestFormParams(message="What is your name?", requested_schema=schema)
    return InputRequiredResult(input_requests={"name": ElicitRequest(params=params)})


@server.tool
async def poem(context: Context) -> str | InputRequiredResult:
    """Asks the model of the client for a verse."""
    answers = context.input_responses
    if answers:
        return f"Poem: {answers['verse'].content.text}"
    text = TextContent(type="text", text="Write a verse.")
    messages = [SamplingMessage(role="user", content=text)]
    params = CreateMessageRequestParams(messages=messages, max_tokens=10)
    return InputRequiredResult(input_requests={"verse": CreateMessageRequest(params=params)})


@server.tool
async def steps(context: Context) -> str:
    """Reports its progress."""
    for step in range(1, 4):
        await context.report_progress(step, 3)
    return "done"


@server.tool
async def wait(context: Context) -> str:
    """Waits until it is cancelled."""
    try:
        await context.report_progress(1, 2)
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        counts["cancelled"] += 1
        raise


@server.tool
def cancelled() -> str:
    """Says how many calls were cancelled."""
    return str(counts["cancelled"])


if sys.argv[1:2] == ["http"]:
    listen(server.http_app(path="/mcp"), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
else:
    server.run("stdio", show_banner=False)
