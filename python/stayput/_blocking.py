"""Operations on a hub for threads: waiting without the interpreter lock, and with Ctrl-C."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from . import _core
from ._scope import current
from ._types import Handler, Handlers

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def wait(op: _core.Operation, listener: Listener | None = None) -> Any:
    """Waits for an operation and returns its result. An interrupt also cancels the call on the server."""
    return op.block(listener)


def wait_all(ops: Iterable[_core.Operation]) -> list[Any]:
    """Waits for all operations and returns their results."""
    return [wait(op) for op in ops]


class Listener:
    """Gets the notifications and requests of a server during a call, on the thread that waits for the call."""

    __slots__ = ("_handlers", "_on_notification")

    def __init__(self, handlers: Handlers, on_notification: Callable[[dict[str, Any]], object] | None = None) -> None:
        self._handlers = handlers
        self._on_notification = on_notification

    def on_notification(self, text: str) -> None:
        """Passes a notification to the callback."""
        if self._on_notification is not None:
            self._on_notification(json.loads(text))

    def on_request(self, request: _core.ServerRequest) -> None:
        """Runs the handler of a request."""
        handler = cast("dict[str, Handler]", self._handlers).get(request.kind)
        if handler is None:
            request.refuse(f"there is no handler for {request.kind}")
            return
        try:
            answer = handler(json.loads(request.params))
            if inspect.isawaitable(answer):
                answer = run_awaitable(answer)
            request.answer(json.dumps(answer))
        except Exception as error:
            request.refuse(str(error) or type(error).__name__)


def run_awaitable(answer: Awaitable[T]) -> T:
    """Runs the coroutine of a handler. This thread is blocked anyway, so it runs a loop; if it already has one, as in a
    notebook, another thread runs it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_as_coroutine(answer))
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(copy_context().run, asyncio.run, _as_coroutine(answer)).result()


async def _as_coroutine(answer: Awaitable[T]) -> T:
    return await answer


class ContextManager(Protocol):
    """Context manager around a function."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> object: ...


def decorate(make: Callable[[], ContextManager], function: F) -> F:
    """Wraps a function so that each call runs inside a new context manager; of a generator, each step does."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def stream(*args: Any, **kwargs: Any) -> Iterator[Any]:
            # Between two steps the consumer has its own scope.
            outer = current.get()
            with make():
                inner = current.get()
                items = function(*args, **kwargs)
                current.set(outer)
                try:
                    while True:
                        outer = current.get()
                        current.set(inner)
                        try:
                            item = next(items)
                        except StopIteration:
                            return
                        finally:
                            current.set(outer)
                        yield item
                finally:
                    outer = current.get()
                    current.set(inner)
                    try:
                        items.close()
                    finally:
                        current.set(outer)

        return cast("F", stream)

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return cast("F", inside)
