"""Conversion of tool results to LangChain content blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from .._types import ToolResult

Block = dict[str, Any]


class Artifact(TypedDict):
    """Artifact of a tool message, which the model does not see."""

    structured_content: Any
    """The structured content, or `None`."""
    raw: dict[str, Any]
    """The whole result, as the server wrote it."""
    server: str
    """The server."""
    tool: str
    """Name of the tool on the server."""
    after_loss: bool
    """Whether the state was lost before the call, so that it ran on a fresh one."""


def content_blocks(result: ToolResult) -> list[Block]:
    """Converts the content of a result to content blocks. The list is never empty, because some providers refuse an
    empty message.

    >>> content_blocks(ToolResult('{"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}'))
    [{'type': 'image', 'base64': 'aGk=', 'mime_type': 'image/png'}]
    >>> content_blocks(ToolResult('{"content": [], "structuredContent": {"count": 3}}'))
    [{'type': 'text', 'text': '{"count": 3}'}]
    """
    found = [content_block(piece) for piece in result.content]
    if not found and result.structured is not None:
        found = [_text(json.dumps(result.structured, ensure_ascii=False))]
    return found or [_text("(no output)")]


def content_block(piece: Mapping[str, Any]) -> Block:
    """Converts one block. A type that LangChain does not have becomes a text with the whole JSON."""
    make = _KINDS.get(str(piece.get("type")))
    return _text(json.dumps(piece, ensure_ascii=False)) if make is None else make(piece)


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _image(piece: Mapping[str, Any]) -> Block:
    return _data(piece.get("data"), piece.get("mimeType") or "image/png")


def _audio(piece: Mapping[str, Any]) -> Block:
    return _data(piece.get("data"), piece.get("mimeType") or "audio/wav")


def _data(data: Any, mime_type: Any) -> Block:
    # Audio becomes a file, because LangChain would convert a tool message with an audio block to text.
    kind = "image" if str(mime_type).startswith("image/") else "file"
    return {"type": kind, "base64": data or "", "mime_type": mime_type}


def _link(piece: Mapping[str, Any]) -> Block:
    uri, mime_type = str(piece.get("uri", "")), piece.get("mimeType")
    if str(mime_type).startswith("image/") and uri.startswith(("http://", "https://")):
        return {"type": "image", "url": uri, "mime_type": mime_type}
    # Providers cannot open the link, but the model can, by a tool.
    words = [piece.get("title") or piece.get("name"), uri, piece.get("description"), mime_type]
    return _text("\n".join(str(word) for word in words if word))


def _resource(piece: Mapping[str, Any]) -> Block:
    inside: Mapping[str, Any] = piece.get("resource") or {}
    if "blob" in inside:
        return _data(inside["blob"], inside.get("mimeType") or "application/octet-stream")
    return _text(str(inside.get("text", "")))


_KINDS: dict[str, Callable[[Mapping[str, Any]], Block]] = {
    "text": lambda piece: _text(str(piece.get("text", ""))),
    "image": _image,
    "audio": _audio,
    "resource_link": _link,
    "resource": _resource,
}
