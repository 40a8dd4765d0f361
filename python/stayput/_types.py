"""What comes back, and what goes in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, TypedDict

__all__ = ["Event", "Handler", "Handlers", "Info", "Prompt", "Report", "Resource", "Status", "Tool", "ToolResult"]

Handler = Callable[[dict[str, Any]], "Awaitable[Mapping[str, Any]] | Mapping[str, Any]"]
"""Takes the parameters of what a server asks, and gives the result, both as the protocol has them."""


class Handlers(TypedDict, total=False):
    """Who answers what servers ask. A server is told of what there is a handler for, and of nothing else."""

    elicitation: Handler
    sampling: Handler
    roots: Handler


class ToolResult:
    """What a tool answered. Nothing of it is decoded before it is asked for.

    >>> result = ToolResult('{"content": [{"type": "text", "text": "3"}], "structuredContent": {"count": 3}}')
    >>> result.text, result.structured, result.is_error
    ('3', {'count': 3}, False)
    """

    __slots__ = ("_data", "after_loss", "raw")

    raw: str
    """The whole result as the server wrote it, as JSON."""
    after_loss: bool
    """Whether all state was lost just before the call, and it ran on a fresh one."""

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
        """All pieces, as the protocol has them."""
        return self.data.get("content") or []

    @property
    def text(self) -> str:
        """All texts, one after the other with a line break between."""
        return "\n".join(piece.get("text", "") for piece in self.content if piece.get("type") == "text")

    @property
    def structured(self) -> Any:
        """The structured content, or `None`."""
        return self.data.get("structuredContent")

    @property
    def is_error(self) -> bool:
        """Whether the tool says that it failed. What went wrong is in `text`, for the model to read."""
        return self.data.get("isError") is True

    def __repr__(self) -> str:
        # Without what was answered: it can hold anything.
        return f"ToolResult({len(self.raw)} bytes)"


@dataclass(frozen=True)
class Tool:
    """A tool of a server."""

    server: str
    """The server."""
    name: str
    """What it is called by."""
    title: str | None
    """What people call it."""
    description: str | None
    """What it is for."""
    input_schema: dict[str, Any]
    """What it takes, a JSON Schema."""
    output_schema: dict[str, Any] | None
    """What its structured content looks like, a JSON Schema."""
    annotations: dict[str, Any]
    """What its server says of it, such as `readOnlyHint`."""
    raw: dict[str, Any] = field(repr=False)
    """All that its server wrote."""

    @classmethod
    def of(cls, server: str, raw: str) -> Tool:
        """As a server wrote it."""
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
    """A prompt of a server."""

    server: str
    name: str
    description: str | None
    arguments: list[dict[str, Any]]
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, server: str, raw: str) -> Prompt:
        """As a server wrote it."""
        it: dict[str, Any] = json.loads(raw)
        return cls(server, it["name"], it.get("description"), it.get("arguments") or [], it)


@dataclass(frozen=True)
class Resource:
    """A resource of a server, or a template of some."""

    server: str
    uri: str
    name: str
    description: str | None
    mime_type: str | None
    raw: dict[str, Any] = field(repr=False)

    @classmethod
    def of(cls, server: str, raw: str) -> Resource:
        """As a server wrote it."""
        it: dict[str, Any] = json.loads(raw)
        uri = it.get("uri") or it.get("uriTemplate") or ""
        return cls(server, uri, it.get("name", ""), it.get("description"), it.get("mimeType"), it)


@dataclass(frozen=True)
class Info:
    """What is known of a session."""

    id: str
    """Its id, which is no secret."""
    name: str | None
    """Its name, if it has one."""
    agent: str
    """The agent in whose namespace the name is; empty for the hub itself."""
    created: datetime
    """When it was opened."""
    last_used: datetime
    """When the last call on it ended."""
    expires: datetime | None
    """When it ends if it is not used again."""
    generation: int
    """The highest generation that any of its links has reached."""

    @classmethod
    def of(cls, told: tuple[str, str | None, str, tuple[int, int, int | None], int]) -> Info:
        """As the native half tells it."""
        identity, name, agent, (created, last_used, expires), generation = told
        until = None if expires is None else _moment(expires)
        return cls(identity, name, agent, _moment(created), _moment(last_used), until, generation)


def _moment(millis: int) -> datetime:
    try:
        return datetime.fromtimestamp(millis / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class Status:
    """How a server stands in a session."""

    state: Literal["unlinked", "opening", "live", "over", "resting"]
    """In one word. `over`: the next call opens another link; `resting`: it failed, and is left alone for a while."""
    generation: int | None = None
    """The generation of a live link."""
    in_flight: int = 0
    """How many calls are in flight on it."""
    reason: str | None = None
    """Why a link is over, in one word."""
    pause: float | None = None
    """For how many seconds it is left alone."""


@dataclass(frozen=True)
class Event:
    """Something happened to a session."""

    kind: Literal["linked", "lost", "ended", "unknown"]
    """`linked`: a link to a server was opened; `lost`: what was behind it is gone; `ended`: the session is over."""
    session: str
    """The id of the session."""
    server: str | None = None
    """The server; of a loss without one, the whole session is meant."""
    generation: int | None = None
    """The generation that is there, or that begins."""
    reason: str | None = None
    """Why something was lost, in one word."""


@dataclass(frozen=True)
class Report:
    """How a hub was closed."""

    opened: int = 0
    """Links that were opened in its life."""
    sessions: int = 0
    """Sessions that were live."""
    links: int = 0
    """Links that were live."""
    killed: int = 0
    """Links that did not go in time, and were killed."""
