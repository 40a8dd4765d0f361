"""What the clients in Python have in common: they read and answer the same lines as those in JavaScript,
see lines.mjs."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator


async def lines() -> AsyncIterator[str]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield line


async def keep(connect, inbox: asyncio.Queue, opened: asyncio.Future) -> None:
    """One client from open to close, in a task of its own: it has to be left where it was entered."""
    try:
        async with connect() as client:
            opened.set_result(client)
            await inbox.get()
    except Exception as error:
        if opened.done():
            raise
        opened.set_exception(error)


class Clients:
    def __init__(self, connect, version, call) -> None:
        self.connect, self.version, self.call = connect, version, call
        self.open = {}

    async def answer(self, command: dict) -> dict:
        if name := command.get("open"):
            inbox, opened = asyncio.Queue(), asyncio.get_running_loop().create_future()
            connect = lambda: self.connect(command.get("headers") or {})
            task = asyncio.create_task(keep(connect, inbox, opened))
            client = await opened
            self.open[name] = client, inbox, task
            return {"version": self.version(client)}
        if name := command.get("call"):
            client = self.open[name][0]
            call = command["tool"], command["arguments"], command.get("meta")
            result = await self.call(client, *call)
            return {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}
        _, inbox, task = self.open.pop(command["close"])
        inbox.put_nowait(None)
        await task
        return {"closed": command["close"]}


def run(connect, version, call) -> None:
    """`connect(headers)` is entered for a client, `version(client)` is what was agreed on, and
    `call(client, tool, arguments, meta)` gives a result of the SDK."""

    async def main() -> None:
        clients = Clients(connect, version, call)
        async for line in lines():
            try:
                said = await clients.answer(json.loads(line))
            except Exception as error:
                said = {"error": repr(error)}
            print(json.dumps(said), flush=True)

    asyncio.run(main())
