"""A client for `make compare`: `client.py URL`, on version 1 or 2 of the official Python SDK.

Calls the tool `count` for each line of the standard input, over one connection, and prints its text or the error as JSON.
"""

import asyncio
import json
import sys

# Longer than any of the programs takes to start its server.
CALL_TIMEOUT = 20


def version_1(url):
    from contextlib import asynccontextmanager

    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    @asynccontextmanager
    async def connect():
        async with streamable_http_client(url) as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            yield session

    return connect()


def version_2(url):
    from mcp import Client

    return Client(url)


def cause(error):
    """Returns the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def call(client):
    try:
        result = await asyncio.wait_for(client.call_tool("count", {}), CALL_TIMEOUT)
    except TimeoutError:
        return {"hangs": CALL_TIMEOUT}
    except Exception as error:
        return {"error": cause(error)}
    text = result.content[0].text
    failed = getattr(result, "is_error", None) or getattr(result, "isError", None)
    return {"error": text} if failed else {"text": text}


async def main(url):
    try:
        import mcp.client.client  # noqa: F401, a module of version 2

        connection = version_2(url)
    except ImportError:
        connection = version_1(url)
    try:
        async with connection as client:
            while await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps(await call(client)), flush=True)
    except BaseException as error:
        print(json.dumps({"error": cause(error)}), flush=True)


asyncio.run(main(sys.argv[1]))
