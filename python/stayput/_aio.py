"""How coroutines wait for what is asked of a hub."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import Context, copy_context
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from . import _core
from ._errors import Invalid
from ._scope import current
from ._types import Handler, Handlers

F = TypeVar("F", bound=Callable[..., Any])

_boxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _core.Mailbox] = WeakKeyDictionary()
_making = threading.Lock()


def _box(loop: asyncio.AbstractEventLoop) -> _core.Mailbox:
    box = _core.Mailbox()
    # In a context of its own: that of the first caller would stay for as long as the loop.
    Context().run(loop.add_reader, box.fileno(), box.drain)
    with _making:
        for other in [other for other in _boxes if other.is_closed()]:
            # What still waits there keeps its loop.
            _boxes.pop(other, None)
        _boxes[loop] = box
    return box


def _in_fork() -> None:
    # There is no thread that would fill the boxes, and the files in them are those of the parent.
    global _making
    _making = threading.Lock()
    _boxes.clear()


os.register_at_fork(after_in_child=_in_fork)


def _running() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        # `RuntimeError: no running event loop` would leave those who have one, of another kind, at a loss.
        raise Invalid(
            "this waits on an event loop of asyncio, and none runs here; with trio, or where there is no loop at all, use "
            "`stayput.sync`, which has the same methods: `await trio.to_thread.run_sync(work)` keeps the session of the task"
        ) from error


async def wait(op: _core.Op, listener: Listener | None = None) -> Any:
    """What comes of it. Cancelled, it is cancelled on the server, too."""
    loop = _running()
    box = _boxes.get(loop)
    if box is None:
        box = _box(loop)
    future: asyncio.Future[Any] = loop.create_future()
    token = box.start(op, future, listener)
    try:
        return await future
    finally:
        if not future.done() or future.cancelled():
            box.cancel(token)
            if listener is not None:
                listener.cancel()


async def wait_all(ops: Iterable[_core.Op]) -> list[Any]:
    """What comes of all of them."""
    return await asyncio.gather(*(wait(op) for op in ops))


class Listener:
    """Hears what a server says during a call, and answers what it asks, in the context and on the loop of that call."""

    __slots__ = ("_context", "_handlers", "_hears", "_loop", "_tasks")

    def __init__(self, handlers: Handlers, hears: Callable[[dict[str, Any]], object] | None = None) -> None:
        self._handlers = handlers
        self._hears = hears
        self._loop = _running()
        self._context = copy_context()
        self._tasks: set[asyncio.Task[None]] = set()

    def resident(self) -> Listener:
        """Who answers what is asked outside any call: in no context."""
        listener = Listener(self._handlers)
        listener._context = Context()
        return listener

    def hear(self, text: str) -> None:
        """A notification came."""
        if self._hears is not None:
            try:
                self._context.copy().run(self._hears, json.loads(text))
            except Exception as error:
                told = {"message": "what listens to a call failed", "exception": error}
                self._loop.call_exception_handler(told)

    def ask(self, question: _core.Question) -> None:
        """A question came."""
        handler = _handler(self._handlers, question.kind)
        if handler is None:
            question.refuse(f"there is no handler for {question.kind}")
            return
        task = self._context.copy().run(self._loop.create_task, _answer(handler, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """The call is over, and nobody wants the answers."""
        for task in self._tasks:
            task.cancel()


def _handler(handlers: Handlers, kind: str) -> Handler | None:
    return cast("dict[str, Handler]", handlers).get(kind)


async def _answer(handler: Handler, question: _core.Question) -> None:
    try:
        answer = handler(json.loads(question.params))
        if inspect.isawaitable(answer):
            answer = await answer
        question.answer(json.dumps(answer))
    except Exception as error:
        question.refuse(str(error) or type(error).__name__)
    except BaseException:
        question.refuse("whoever was asked has gone")
        raise


class Entering(Protocol):
    """Something that is entered and left."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


def decorated(make: Callable[[], Entering], function: F) -> F:
    """A function, each call of which is inside what `make` makes; of an async generator, each step is."""
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            # Whoever takes the steps keeps its own scope in between.
            outer = current.get()
            async with make():
                inner = current.get()
                pieces = function(*args, **kwargs)
                current.set(outer)
                try:
                    while True:
                        outer = current.get()
                        current.set(inner)
                        try:
                            piece = await pieces.__anext__()
                        except StopAsyncIteration:
                            return
                        finally:
                            current.set(outer)
                        yield piece
                finally:
                    outer = current.get()
                    current.set(inner)
                    try:
                        await pieces.aclose()
                    finally:
                        current.set(outer)

        return cast("F", stream)

    @functools.wraps(function)
    async def inside(*args: Any, **kwargs: Any) -> Any:
        async with make():
            return await function(*args, **kwargs)

    return cast("F", inside)
