"""LangGraph agent with a scripted model, without a network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition

Agent = CompiledStateGraph[Any, Any, Any, Any]
Step = list[tuple[str, dict[str, Any]]]
"""Tool calls of one step, made concurrently."""


class ScriptedModel(BaseChatModel):
    """Executes the steps of the user's message, then returns the output of the last tool.

    `<NAME>` in an argument is replaced by the reference that the last page snapshot has for this name.
    """

    known: frozenset[str] = frozenset()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Converts the schema of each tool, as providers do."""
        names = frozenset(convert_to_openai_tool(tool)["function"]["name"] for tool in tools)
        return ScriptedModel(known=names)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        last = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        steps: list[Step] = json.loads(str(messages[last].content))
        done = sum(isinstance(message, AIMessage) for message in messages[last:])
        answer = AIMessage(message_text(messages[-1]))
        if done < len(steps):
            tool_output = "\n".join(message_text(message) for message in messages if isinstance(message, ToolMessage))
            calls = [
                {"type": "tool_call", "id": f"{last}-{done}-{n}", "name": name, "args": fill_references(args, tool_output)}
                for n, (name, args) in enumerate(steps[done])
            ]
            assert {call["name"] for call in calls} <= self.known
            answer = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def message_text(message: BaseMessage) -> str:
    """Text of a message."""
    return str(message.text)


def fill_references(args: dict[str, Any], tool_output: str) -> dict[str, Any]:
    """Replaces references by those of the last tool output."""

    def reference(value: Any) -> Any:
        wanted = re.fullmatch(r"<(.+)>", value) if isinstance(value, str) else None
        if wanted is None:
            return value
        return re.findall(rf'"{re.escape(wanted[1])}".*\[ref=(\w+)\]', tool_output)[-1]

    return {name: reference(value) for name, value in args.items()}


def agent(tools: Sequence[BaseTool]) -> Agent:
    """Builds an agent that remembers the messages of each thread."""
    return build_graph(tools).compile(checkpointer=InMemorySaver())


def build_graph(tools: Sequence[BaseTool]) -> StateGraph[Any, Any, Any, Any]:
    """Builds the graph of the agent, without memory."""
    model = ScriptedModel().bind_tools(list(tools))

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", ToolNode(list(tools)))
    graph.add_edge("__start__", "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph


def thread_config(thread: str) -> RunnableConfig:
    """Config of a thread."""
    return {"configurable": {"thread_id": thread}}


def user_message(*steps: Step) -> dict[str, Any]:
    """Message of the user with these steps."""
    return {"messages": [HumanMessage(json.dumps(steps))]}


async def turn(graph: Agent, thread: str, *steps: Step) -> str:
    """Runs one turn of a conversation, and returns the last message."""
    return message_text((await graph.ainvoke(user_message(*steps), thread_config(thread)))["messages"][-1])
