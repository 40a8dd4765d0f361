"""A client that lets a server ask, report progress and be cancelled: `both_eras.py SDK URL`, where SDK is `python` or
`fastmcp`. It prints what came of it as JSON."""

import json
import sys

import anyio
import fastmcp
import mcp
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CreateMessageResult, ElicitResult, TextContent


async def sample(context, params):
    text = TextContent(type="text", text="roses are red")
    return CreateMessageResult(role="assistant", content=text, model="none")


def python(url):
    async def elicit(context, params):
        return ElicitResult(action="accept", content={"name": "Ann"})

    to = streamable_http_client(url)
    return mcp.Client(to, mode="auto", elicitation_callback=elicit, sampling_callback=sample)


def fastmcp_client(url):
    async def elicit(message, kind, params, context):
        return ElicitResult(action="accept", content={"name": "Ann"})

    async def model(messages, params, context):
        return "roses are red"

    to = StreamableHttpTransport(url)
    return fastmcp.Client(to, mode="auto", elicitation_handler=elicit, sampling_handler=model)


def text(result):
    return result.content[0].text


async def cancel(call):
    """Cancels a call that has reported progress."""
    began = anyio.Event()

    async def noted(done, total, message):
        began.set()

    async def run():
        await call("wait", noted)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await began.wait()
        group.cancel_scope.cancel()


async def use(client):
    async def call(tool, noted=None):
        handler = {"progress_handler" if isinstance(client, fastmcp.Client) else "progress_callback": noted}
        return text(await client.call_tool(tool, {}, **handler))

    said = {"version": client.protocol_version}
    for tool in ["count", "count", "greet", "poem"]:
        said[tool] = await call(tool)
    progress = []

    async def note(done, total, message):
        progress.append(int(done))

    said["steps"] = await call("steps", note)
    said["progress"] = progress
    await cancel(call)
    while await call("cancelled") == "0":
        await anyio.sleep(0.02)
    said["cancelled"] = True
    return said


async def main(sdk, url):
    async with {"python": python, "fastmcp": fastmcp_client}[sdk](url) as client:
        with anyio.fail_after(60):
            print(json.dumps(await use(client)))


anyio.run(main, *sys.argv[1:])
