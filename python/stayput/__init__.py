"""Stateful MCP servers for agents: sessions that follow the task, shared with sub-agents by choice, closed for certain.

    hub = stayput.Hub.from_config("mcp.json")
    async with hub.session("chat-42") as chat:
        await chat.call("browser", "browser_navigate", url="https://example.com")

`stayput.sync` is the same without `await`. `stayput.langchain` has tools for LangChain and LangGraph.
"""

from __future__ import annotations

from ._errors import (
    AtCapacity,
    CallFailed,
    CallTimedOut,
    ConfigError,
    Denied,
    HubClosed,
    HubForked,
    Invalid,
    NameTaken,
    NoSession,
    Refused,
    ServerFailed,
    SessionEnded,
    SessionUnavailable,
    StateLost,
    StayputError,
    Unanswered,
    UnknownServer,
    UnknownSession,
)
from ._face import Events, Hub, Run, Session, Sub
from ._types import Event, Handler, Handlers, Info, Prompt, Report, Resource, Status, Tool, ToolResult

__all__ = [
    "AtCapacity",
    "CallFailed",
    "CallTimedOut",
    "ConfigError",
    "Denied",
    "Event",
    "Events",
    "Handler",
    "Handlers",
    "Hub",
    "HubClosed",
    "HubForked",
    "Info",
    "Invalid",
    "NameTaken",
    "NoSession",
    "Prompt",
    "Refused",
    "Report",
    "Resource",
    "Run",
    "ServerFailed",
    "Session",
    "SessionEnded",
    "SessionUnavailable",
    "StateLost",
    "Status",
    "StayputError",
    "Sub",
    "Tool",
    "ToolResult",
    "Unanswered",
    "UnknownServer",
    "UnknownSession",
]
