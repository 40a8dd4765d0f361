"""Operations on a hub for asyncio: waiting, notifications, requests of servers."""

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
from ._errors import InvalidInputError
from ._scope import current
from ._types import Handler, Handlers

F = TypeVar("F", bound=Callable[..., Any])

_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _core.Mailbox] = WeakKeyDictionary()
_mailboxes_lock = threading.Lock()


def _create_mailbox(loop: asyncio.AbstractEventLoop) -> _core.Mailbox:
    mailbox = _core.Mailbox()
    # In an empty context: the loop would keep the first caller's context as long as it exists.
    Context().run(loop.add_reader, mailbox.fileno(), mailbox.drain)
    with _mailboxes_lock:
        for other in [other for other in _mailboxes if other.is_closed()]:
            # Futures in the mailbox refer to their loop, so a closed loop would never be freed.
            _mailboxes.pop(other, None)
        _mailboxes[loop] = mailbox
    return mailbox


def _reset_after_fork() -> None:
    # In the child no thread fills the mailboxes, and their pipes are shared with the parent.
    global _mailboxes_lock
    _mailboxes_lock = threading.Lock()
    _mailboxes.clear()


os.register_at_fork(after_in_child=_reset_after_fork)


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        # `RuntimeError: no running event loop` would confuse users of another kind of loop.
        raise InvalidInputError(
            "this needs a running asyncio event loop; with trio, or without a loop, use `stayput.sync`, which has the "
            "same methods: `await trio.to_thread.run_sync(work)` keeps the session of the task"
        ) from error


async def wait(op: _core.Operation, listener: Listener | None = None) -> Any:
    """Waits for an operation and returns its result. Cancellation also cancels the call on the server."""
    loop = _running_loop()
    mailbox = _mailboxes.get(loop)
    if mailbox is None:
        mailbox = _create_mailbox(loop)
    future: asyncio.Future[Any] = loop.create_future()
    token = mailbox.start(op, future, listener)
    try:
        return await future
    finally:
        if not future.done() or future.cancelled():
            mailbox.cancel(token)
            if listener is not None:
                listener.cancel()


async def wait_all(ops: Iterable[_core.Operation]) -> list[Any]:
    """Waits for all operations and returns their results."""
    return await asyncio.gather(*(wait(op) for op in ops))


class Listener:
    """Gets the notifications and requests of a server during a call, in the context and on the loop of that call."""

    __slots__ = ("_context", "_handlers", "_on_notification", "_loop", "_tasks")

    def __init__(self, handlers: Handlers, on_notification: Callable[[dict[str, Any]], object] | None = None) -> None:
        self._handlers = handlers
        self._on_notification = on_notification
        self._loop = _running_loop()
        self._context = copy_context()
        self._tasks: set[asyncio.Task[None]] = set()

    def outside_calls(self) -> Listener:
        """Returns a listener for requests outside of calls, with an empty context."""
        listener = Listener(self._handlers)
        listener._context = Context()
        return listener

    def on_notification(self, text: str) -> None:
        """Passes a notification to the callback."""
        if self._on_notification is not None:
            try:
                self._context.copy().run(self._on_notification, json.loads(text))
            except Exception as error:
                context = {"message": "the notification callback of a call failed", "exception": error}
                self._loop.call_exception_handler(context)

    def on_request(self, request: _core.ServerRequest) -> None:
        """Starts the handler of a request."""
        handler = _handler(self._handlers, request.kind)
        if handler is None:
            request.refuse(f"there is no handler for {request.kind}")
            return
        task = self._context.copy().run(self._loop.create_task, _answer(handler, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        """Cancels the running handlers when the call ends."""
        for task in self._tasks:
            task.cancel()


def _handler(handlers: Handlers, kind: str) -> Handler | None:
    return cast("dict[str, Handler]", handlers).get(kind)


async def _answer(handler: Handler, request: _core.ServerRequest) -> None:
    try:
        answer = handler(json.loads(request.params))
        if inspect.isawaitable(answer):
            answer = await answer
        request.answer(json.dumps(answer))
    except Exception as error:
        request.refuse(str(error) or type(error).__name__)
    except BaseException:
        request.refuse("the handler was cancelled")
        raise


class ContextManager(Protocol):
    """Context manager around a function."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> object: ...


def decorate(make: Callable[[], ContextManager], function: F) -> F:
    """Wraps a function so that each call runs inside a new context manager; of an async generator, each step does."""
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            # Between two steps the consumer has its own scope.
            outer = current.get()
            async with make():
                inner = current.get()
                items = function(*args, **kwargs)
                current.set(outer)
                try:
                    while True:
                        outer = current.get()
                        current.set(inner)
                        try:
                            item = await items.__anext__()
                        except StopAsyncIteration:
                            return
                        finally:
                            current.set(outer)
                        yield item
                finally:
                    outer = current.get()
                    current.set(inner)
                    try:
                        await items.aclose()
                    finally:
                        current.set(outer)

        return cast("F", stream)

    @functools.wraps(function)
    async def inside(*args: Any, **kwargs: Any) -> Any:
        async with make():
            return await function(*args, **kwargs)

    return cast("F", inside)
