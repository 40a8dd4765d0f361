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
    AccessDenied,
    HubClosed,
    HubForked,
    InvalidInput,
    NameTaken,
    NoSession,
    ProtocolError,
    ServerFailed,
    SessionEnded,
    SessionUnavailable,
    StateLost,
    StayputError,
    InputRequired,
    UnknownServer,
    UnknownSession,
)
from ._async import Events, Hub, Run, Session, SubAgent
from ._types import Event, Handler, Handlers, SessionInfo, Prompt, CloseReport, Resource, SessionStatus, Tool, ToolResult

__all__ = [
    "AtCapacity",
    "CallFailed",
    "CallTimedOut",
    "ConfigError",
    "AccessDenied",
    "Event",
    "Events",
    "Handler",
    "Handlers",
    "Hub",
    "HubClosed",
    "HubForked",
    "SessionInfo",
    "InvalidInput",
    "NameTaken",
    "NoSession",
    "Prompt",
    "ProtocolError",
    "CloseReport",
    "Resource",
    "Run",
    "ServerFailed",
    "Session",
    "SessionEnded",
    "SessionUnavailable",
    "StateLost",
    "SessionStatus",
    "StayputError",
    "SubAgent",
    "Tool",
    "ToolResult",
    "InputRequired",
    "UnknownServer",
    "UnknownSession",
]
