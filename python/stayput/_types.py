"""Results, list items, status and handler types."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any, Literal, TypedDict

__all__ = [
    "CloseReport",
    "Event",
    "Handler",
    "Handlers",
    "Prompt",
    "Resource",
    "SessionInfo",
    "SessionStatus",
    "Tool",
    "ToolResult",
]

class Unchanged(Enum):
    """Type of the default of an option that keeps its value."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
"""Keeps the value of an option, see `Hub.with_options`."""

Handler = Callable[[dict[str, Any]], "Awaitable[Mapping[str, Any]] | Mapping[str, Any]"]
"""Takes the parameters of a server's request and returns the result, both as in the protocol."""


class Handlers(TypedDict, total=False):
    """Handlers of requests that servers send. The hub declares exactly the capabilities that have a handler."""

    elicitation: Handler
    sampling: Handler
    roots: Handler


class ToolResult:
    """Result of a tool call. The JSON is decoded at the first access.

    >>> result = ToolResult('{"content": [{"type": "text", "text": "3"}], "structuredContent": {"count": 3}}')
    >>> result.text, result.structured, result.is_error
    ('3', {'count': 3}, False)
    """

    __slots__ = ("_data", "after_loss", "raw")

    raw: str
    """The whole result as the server wrote it, as JSON."""
    after_loss: bool
    """Whether the state was lost before the call, so that it ran on a fresh one."""

    def __init__(self, raw: str, after_loss: bool = False) -> None:
        self.raw = raw
        self.after_loss = after_loss
        self._data: dict[str, Any] | None = None

    @property
    def data(self) -> dict[str, Any]:
        """The whole result, decoded."""
        data = self._data
        if data is None:
            data = self._data = dict[str, Any](json.loads(self.raw))
        return data

    @property
    def content(self) -> list[dict[str, Any]]:
        """All content blocks, as in the protocol."""
        return self.data.get("content") or []

    @property
    def text(self) -> str:
        """All text blocks, joined by line breaks."""
        return "\n".join(block.get("text", "") for block in self.content if block.get("type") == "text")

    @property
    def structured(self) -> Any:
        """The structured content, or `None`."""
        return self.data.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether the tool reports a failure. `text` has its description, for the model."""
        return self.data.get("isError") is True

    def __repr__(self) -> str:
        # Without the content, which may hold secrets.
        return f"ToolResult({len(self.raw)} bytes)"


@dataclass(frozen=True)
class Tool:
    """Tool of a server."""

    server: str
    """The server."""
    name: str
    """Name in calls."""
    title: str | None
    """Name for people."""
    description: str | None
    """Description for the model."""
    input_schema: dict[str, Any]
    """JSON Schema of the arguments."""
    output_schema: dict[str, Any] | None
    """JSON Schema of the structured content."""
    annotations: dict[str, Any]
    """Annotations of the server, such as `readOnlyHint`."""
    raw: dict[str, Any] = field(repr=False)
    """The whole entry of the server."""

    @classmethod
    def from_json(cls, server: str, raw: str) -> Tool:
        """Decodes the JSON of a server."""
        it: dict[str, Any] = json.loads(raw)
        return cls(
            server=server,
            name=it["name"],
            title=it.get("title"),
            description=it.get("description"),
            input_schema=it.get("inputSchema") or {"type": "object"},
            output_schema=it.get("outputSchema"),
            annotations=it.get("annotations") or {},
            raw=it,
        )


@dataclass(frozen=True)
class Prompt:
    """Prompt of a server."""

    server: str
    name: str
    description: str | None
    arguments: list[dict[str, Any]]
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, server: str, raw: str) -> Prompt:
        """Decodes the JSON of a server."""
        it: dict[str, Any] = json.loads(raw)
        return cls(server, it["name"], it.get("description"), it.get("arguments") or [], it)


@dataclass(frozen=True)
class Resource:
    """Resource or resource template of a server."""

    server: str
    uri: str
    name: str
    description: str | None
    mime_type: str | None
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, server: str, raw: str) -> Resource:
        """Decodes the JSON of a server."""
        it: dict[str, Any] = json.loads(raw)
        uri = it.get("uri") or it.get("uriTemplate") or ""
        return cls(server, uri, it.get("name", ""), it.get("description"), it.get("mimeType"), it)


@dataclass(frozen=True)
class SessionInfo:
    """Details of a session."""

    id: str
    """Id, which is not a secret."""
    name: str | None
    """Name, if it has one."""
    agent: str
    """Agent in whose namespace the name is; empty for the hub itself."""
    created: datetime
    """Time at which it was created."""
    last_used: datetime
    """Time at which its last call ended."""
    expires: datetime | None
    """Time at which it expires if it is not used again."""
    generation: int
    """Highest generation of all its links so far."""

    @classmethod
    def from_native(cls, values: tuple[str, str | None, str, tuple[int, int, int | None], int]) -> SessionInfo:
        """Converts the tuple of the native half."""
        identity, name, agent, (created, last_used, expires), generation = values
        until = None if expires is None else _to_datetime(expires)
        return cls(identity, name, agent, _to_datetime(created), _to_datetime(last_used), until, generation)


def _to_datetime(millis: int) -> datetime:
    try:
        return datetime.fromtimestamp(millis / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class SessionStatus:
    """State of the link between a session and a server."""

    state: Literal["unlinked", "opening", "live", "closed", "backing_off"]
    """`closed`: the next call opens a new link. `backing_off`: the server failed, and starts only after a delay."""
    generation: int | None = None
    """Generation of a live link."""
    in_flight: int = 0
    """Number of calls in flight."""
    reason: str | None = None
    """Reason why the link was closed, in one word."""
    retry_after: float | None = None
    """Remaining delay in seconds before the next start."""


@dataclass(frozen=True)
class Event:
    """Event of a session."""

    kind: Literal["linked", "called", "lost", "ended", "unknown"]
    """`linked`: a link to a server was opened or resumed; `called`: a tool call got its answer or failed; `lost`: the state of
    a link was lost; `ended`: the session ended."""
    session: str
    """Id of the session."""
    server: str | None = None
    """The server. A loss without one concerns the whole session."""
    generation: int | None = None
    """Generation of the link, or the generation that begins after a loss."""
    reason: str | None = None
    """Reason of a loss, in one word; kind of the error of a call that got no answer."""
    session_name: str | None = None
    """Name of the session, if it has one."""
    exit_code: int | None = None
    """After a loss: exit code of the server's process; minus the signal, if it was killed."""
    detail: str = ""
    """After a loss: last lines of the process on stderr, without the configured secrets."""
    tool: str | None = None
    """Tool of a call."""
    duration: float | None = None
    """Seconds from sending a call to its end."""


@dataclass(frozen=True)
class CloseReport:
    """Counts of a closed hub."""

    opened: int = 0
    """Links opened during the lifetime of the hub."""
    sessions: int = 0
    """Sessions that were live when it was closed."""
    links: int = 0
    """Links that were live when it was closed."""
    killed: int = 0
    """Links that did not close in time, and were killed."""
