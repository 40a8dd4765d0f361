"""An agent of LangGraph whose model says what it was told to say, without a network."""

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
"""Tools to be called at once."""


class Scripted(BaseChatModel):
    """Does the steps that the user wrote down, then says what the last tool said.

    `<NAME>` in an argument is the reference that a page has for what is called so: the model reads what it was told.
    """

    known: frozenset[str] = frozenset()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """As providers do it: out of the schema of each tool."""
        names = frozenset(convert_to_openai_tool(tool)["function"]["name"] for tool in tools)
        return Scripted(known=names)

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
        answer = AIMessage(said(messages[-1]))
        if done < len(steps):
            heard = "\n".join(said(message) for message in messages if isinstance(message, ToolMessage))
            calls = [
                {"type": "tool_call", "id": f"{last}-{done}-{n}", "name": name, "args": filled(args, heard)}
                for n, (name, args) in enumerate(steps[done])
            ]
            assert {call["name"] for call in calls} <= self.known
            answer = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def said(message: BaseMessage) -> str:
    """The words of a message."""
    return str(message.text)


def filled(args: dict[str, Any], heard: str) -> dict[str, Any]:
    """With references out of what was heard last."""

    def reference(value: Any) -> Any:
        wanted = re.fullmatch(r"<(.+)>", value) if isinstance(value, str) else None
        if wanted is None:
            return value
        return re.findall(rf'"{re.escape(wanted[1])}".*\[ref=(\w+)\]', heard)[-1]

    return {name: reference(value) for name, value in args.items()}


def agent(tools: Sequence[BaseTool]) -> Agent:
    """A model and its tools, in turns, with a memory of what was said in each thread."""
    return assembled(tools).compile(checkpointer=InMemorySaver())


def assembled(tools: Sequence[BaseTool]) -> StateGraph[Any, Any, Any, Any]:
    """The same, before it has a memory."""
    model = Scripted().bind_tools(list(tools))

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", ToolNode(list(tools)))
    graph.add_edge("__start__", "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph


def of(thread: str) -> RunnableConfig:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread}}


def told(*steps: Step) -> dict[str, Any]:
    """What a user says: these steps, one after the other."""
    return {"messages": [HumanMessage(json.dumps(steps))]}


async def turn(graph: Agent, thread: str, *steps: Step) -> str:
    """A turn of a conversation; what the agent says at its end."""
    return said((await graph.ainvoke(told(*steps), of(thread)))["messages"][-1])
