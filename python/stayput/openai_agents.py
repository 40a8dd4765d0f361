"""Tools for the OpenAI Agents SDK with stateful MCP servers. Needs the package `openai-agents`.

    hub = stayput.Hub.from_config("mcp.json")
    agent = Agent(name="assistant", tools=await as_function_tools(hub, key="thread_id"))
    await Runner.run(agent, "Open the page", context={"thread_id": "chat-42"})
"""

# The SDK is no dependency of the package, so that its types may be unknown here.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownLambdaType=false
# mypy: disable-error-code="import-not-found,attr-defined,unused-ignore"

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

try:
    from agents import FunctionTool
except ImportError as error:
    raise ImportError("`stayput.openai_agents` needs the OpenAI Agents SDK: pip install openai-agents") from error

from ._async import Hub, Session
from ._errors import InvalidInputError, StayputError
from ._types import Tool, ToolResult

__all__ = ["ContextKey", "as_function_tools"]

ContextKey = str | Callable[[Any], str | None]
"""Source of the session name: a key or an attribute of the run's `context`, or a function of it."""


async def as_function_tools(
    calls: Hub | Session, server: str | None = None, *, key: ContextKey | None = None, prefix: bool = False
) -> list[Any]:
    """Lists the tools of one server or of all as `FunctionTool`s.

    On a session all calls belong to it. On a hub with `key`, a call belongs to the session that the `context` of the run names;
    otherwise to the session of the task, see `Hub.run`. A failure is a text for the model. If two servers have a tool of the
    same name, or with `prefix`, the name of the server comes first.
    """
    tools = await calls.tools(server)
    return [_function_tool(calls, tool, name, key) for tool, name in zip(tools, _names(tools, prefix))]


def _names(tools: Sequence[Tool], prefix: bool) -> list[str]:
    names = [tool.name for tool in tools]
    return [f"{tool.server}__{tool.name}" if prefix or names.count(tool.name) > 1 else tool.name for tool in tools]


def _function_tool(calls: Hub | Session, tool: Tool, name: str, key: ContextKey | None) -> Any:
    async def invoke(context: Any, arguments: str) -> str:
        target = _target(calls, key, context.context)
        try:
            return _text(await target.call(tool.server, tool.name, json.loads(arguments or "{}")))
        except InvalidInputError:
            raise
        except StayputError as error:
            return f"{error}. It may have been carried out." if error.may_have_run else str(error)

    schema = {"type": "object", "properties": {}, **tool.input_schema}
    # The schema of a server need not be strict.
    return FunctionTool(name, tool.description or tool.name, schema, invoke, strict_json_schema=False)


def _target(calls: Hub | Session, key: ContextKey | None, context: Any) -> Hub | Session:
    if key is None or isinstance(calls, Session):
        return calls
    if callable(key):
        name = key(context)
    else:
        name = context.get(key) if isinstance(context, Mapping) else getattr(context, key, None)
    if not name:
        raise InvalidInputError(f"the context of this run names no session: give `Runner.run` a context with `{key}`")
    return calls.session(str(name))


def _text(result: ToolResult) -> str:
    if result.text or result.structured is None:
        return result.text
    return json.dumps(result.structured, ensure_ascii=False)
