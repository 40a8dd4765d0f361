"""OpenAI Agents SDK with a scripted model: two conversations apart, their state kept over turns."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import stayput
from stayput.openai_agents import as_function_tools

os.environ.setdefault("OPENAI_API_KEY", "unused")


class Scripted(Model):
    """Calls `note_add` with the user's text, then `note_list`, and answers with its result."""

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> ModelResponse:
        items = input if isinstance(input, list) else [{"role": "user", "content": input}]
        last = items[-1]
        answers = [it["output"] for it in items if it.get("type") == "function_call_output"]
        if last.get("role") == "user":
            output: Any = self._call("note_add", text=last["content"])
        elif len(answers) == 1:
            output = self._call("note_list")
        else:
            text = ResponseOutputText(annotations=[], text=answers[-1], type="output_text")
            output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def _call(self, name: str, **arguments: str) -> ResponseFunctionToolCall:
        return ResponseFunctionToolCall(arguments=json.dumps(arguments), call_id=name, name=name, type="function_call")

    def stream_response(self, *rest: Any, **more: Any) -> Any:
        raise NotImplementedError


async def main(program: str) -> None:
    set_tracing_disabled(True)
    config = {"mcpServers": {"notes": {"command": program, "args": ["demo-server"]}}}
    async with stayput.Hub.from_config(config) as hub:
        agent = Agent(name="notes", model=Scripted(), tools=await as_function_tools(hub, key="thread_id"))
        said = []
        for thread, text in [("ann", "milk"), ("bob", "call"), ("ann", "bread")]:
            done = await Runner.run(agent, text, context={"thread_id": thread})
            said.append(done.final_output)
    assert said == ["1. milk", "1. call", "1. milk\n2. bread"], said
    print("openai-agents: two conversations apart, state kept over turns")


asyncio.run(main(sys.argv[1]))
