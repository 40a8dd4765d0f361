"""The client of langchain-mcp-adapters and its replacement: one program runs with both, after one changed import."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import sys
from types import ModuleType
from typing import Any

import langchain_mcp_adapters.callbacks
import langchain_mcp_adapters.client
import langchain_mcp_adapters.interceptors
import langchain_mcp_adapters.prompts
import langchain_mcp_adapters.resources
import langchain_mcp_adapters.tools

import stayput.langchain as ours

PROGRAM = sys.argv[1]
SERVERS: dict[str, Any] = {"notes": {"transport": "stdio", "command": PROGRAM, "args": ["demo-server"]}}

# What docs/langchain.md says is not taken over.
LEFT_OUT = {"get_server_info", "connection", "server_name"}


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "session"}


def compare_names() -> None:
    theirs = langchain_mcp_adapters
    pairs: list[tuple[Any, Any]] = [
        (theirs.client.MultiServerMCPClient, ours.MultiServerMCPClient),
        (theirs.tools.load_mcp_tools, ours.load_mcp_tools),
        (theirs.resources.load_mcp_resources, ours.load_mcp_resources),
        (theirs.prompts.load_mcp_prompt, ours.load_mcp_prompt),
    ]
    for original, mine in pairs:
        missing = parameters(original) - parameters(mine) - LEFT_OUT
        assert not missing, (original, missing)
    client, mine = theirs.client.MultiServerMCPClient, ours.MultiServerMCPClient
    for name in [name for name in vars(client) if not name.startswith("_")]:
        assert name in LEFT_OUT or parameters(getattr(client, name)) <= parameters(getattr(mine, name)), name
    for name in ("Callbacks", "CallbackContext", "MCPToolCallRequest"):
        module = theirs.interceptors if name == "MCPToolCallRequest" else theirs.callbacks
        fields = [{it.name for it in dataclasses.fields(getattr(of, name))} for of in (module, ours)]
        assert fields[0] == fields[1], fields


async def run(module: ModuleType, load: ModuleType) -> list[Any]:
    """A program with interceptors, callbacks, prefixes and a held session."""
    seen = list[Any]()

    async def shout(request: Any, handler: Any) -> Any:
        seen.append((request.name, request.server_name, sorted(request.args)))
        return await handler(request.override(args={**request.args, "text": request.args["text"].upper()}))

    client = module.MultiServerMCPClient(SERVERS, tool_interceptors=[shout], tool_name_prefix=True, callbacks=module.Callbacks())
    tools = {tool.name: tool for tool in await client.get_tools(server_name="notes")}
    seen.append(sorted(tools))
    seen.append((await tools["notes_note_add"].ainvoke({"text": "milk"}))[0]["text"])
    async with client.session("notes") as session:
        held = {tool.name: tool for tool in await load.load_mcp_tools(session)}
        for text in ["bread", "butter"]:
            await held["note_add"].ainvoke({"text": text})
        seen.append([(block["type"], block["text"]) for block in await held["note_list"].ainvoke({})])
    return seen


async def main() -> None:
    compare_names()
    original = await run(langchain_mcp_adapters.client, langchain_mcp_adapters.tools)
    replaced = await run(ours, ours)
    assert original == replaced, (original, replaced)
    print("langchain-mcp-adapters: the same program does the same with the drop-in")


asyncio.run(main())
