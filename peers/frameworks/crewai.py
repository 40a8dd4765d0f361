"""CrewAI through the gateway: one URL per conversation."""

from __future__ import annotations

import sys
import uuid

from crewai_tools import MCPServerAdapter

server = {"url": f"{sys.argv[2]}/mcp/notes/~crew-{uuid.uuid4()}", "transport": "streamable-http"}
texts = []
for note in ["milk", "bread"]:
    with MCPServerAdapter(server) as tools:
        by_name = {tool.name: tool for tool in tools}
        by_name["note_add"].run(text=note)
        texts.append(by_name["note_list"].run())
assert "milk" in texts[1] and "bread" in texts[1] and "bread" not in texts[0], texts
print("crewai: the conversation goes on over connections")
