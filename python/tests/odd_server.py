"""MCP server over stdio for tests: unusual tool names and schemas, and all kinds of content."""

from __future__ import annotations

import json
import sys
from typing import Any

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

ANYTHING = {"type": "object"}
REFERRING = {
    "type": "object",
    "properties": {"point": {"$ref": "#/$defs/point"}, "self": {"type": "string"}, "config": {"type": "object"}},
    "required": ["point"],
    "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}}},
}

TOOLS: list[dict[str, Any]] = [
    {"name": "show", "inputSchema": {}, "description": "Shows all kinds of content.", "title": "Show & tell"},
    {"name": "number", "inputSchema": ANYTHING, "annotations": {"readOnlyHint": True}, "_meta": {"of": "us"}},
    {"name": "say.back", "inputSchema": REFERRING},
    {"name": "say_back", "inputSchema": REFERRING},
    {"name": "count", "inputSchema": ANYTHING},
    {"name": "ärger/mit:namen " + "x" * 80, "inputSchema": ANYTHING},
    {"name": "picture_of_a_failure", "inputSchema": ANYTHING},
    {"name": "silence", "inputSchema": ANYTHING},
]

CONTENT: list[dict[str, Any]] = [
    {"type": "text", "text": "words"},
    {"type": "image", "data": PIXEL, "mimeType": "image/png"},
    {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "odd://text", "text": "a text"}},
    {"type": "resource", "resource": {"uri": "odd://blob", "blob": "aGk=", "mimeType": "application/pdf"}},
    {"type": "resource_link", "uri": "odd://far", "name": "far"},
    {"type": "resource_link", "uri": "https://127.0.0.1/a.png", "name": "a", "mimeType": "image/png"},
    {"type": "hologram", "of": "tomorrow"},
]

MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": {"type": "text", "text": "How do you do?"}},
    {"role": "assistant", "content": {"type": "image", "data": PIXEL, "mimeType": "image/png"}},
]

CONTENTS: dict[str, dict[str, Any]] = {
    "odd://text": {"uri": "odd://text", "mimeType": "text/plain", "text": "a text"},
    "odd://blob": {"uri": "odd://blob", "mimeType": "application/pdf", "blob": "aGk="},
}

counted = 0


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    global counted
    if name == "show":
        return {"content": CONTENT, "structuredContent": {"kinds": len(CONTENT)}}
    if name == "number":
        return {"content": [], "structuredContent": {"number": 7}}
    if name == "count":
        counted += 1
        return {"content": [{"type": "text", "text": f"odd {counted}"}]}
    if name == "picture_of_a_failure":
        return {"content": [CONTENT[1]], "isError": True}
    if name == "silence":
        return {"content": []}
    return {"content": [{"type": "text", "text": json.dumps({name: arguments}, sort_keys=True)}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        can: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
        about = {"name": "odd", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    if method == "prompts/list":
        return {"prompts": [{"name": "greet"}]}
    if method == "prompts/get":
        return {"messages": MESSAGES}
    if method == "resources/list":
        return {"resources": [{"uri": uri, "name": uri} for uri in CONTENTS]}
    if method == "resources/read":
        return {"contents": [CONTENTS[params["uri"]]]}
    if method == "ping":
        return {}
    return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        response |= {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        print(json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
