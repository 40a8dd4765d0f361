"""How threads wait for what is asked of a hub: without the lock of the interpreter, and heeding Ctrl-C."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from . import _core
from ._scope import current
from ._types import Handler, Handlers

F = TypeVar("F", bound=Callable[..., Any])


def wait(op: _core.Op, listener: Listener | None = None) -> Any:
    """What comes of it. Interrupted, it is cancelled on the server, too."""
    return op.block(listener)


def wait_all(ops: Iterable[_core.Op]) -> list[Any]:
    """What comes of all of them."""
    return [wait(op) for op in ops]


class Listener:
    """Hears what a server says during a call, and answers what it asks, on the thread that waits for the call."""

    __slots__ = ("_handlers", "_hears")

    def __init__(self, handlers: Handlers, hears: Callable[[dict[str, Any]], object] | None = None) -> None:
        self._handlers = handlers
        self._hears = hears

    def hear(self, text: str) -> None:
        """A notification came."""
        if self._hears is not None:
            self._hears(json.loads(text))

    def ask(self, question: _core.Question) -> None:
        """A question came."""
        handler = cast("dict[str, Handler]", self._handlers).get(question.kind)
        if handler is None:
            question.refuse(f"there is no handler for {question.kind}")
            return
        try:
            answer = handler(json.loads(question.params))
            if inspect.isawaitable(answer):
                answer = _awaited(answer)
            question.answer(json.dumps(answer))
        except Exception as error:
            question.refuse(str(error) or type(error).__name__)


def _awaited(answer: Awaitable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Of a hub that is used both ways. This thread waits, so it has time for a loop; if it has one already, as in a
    notebook, that stands still, and another thread runs one for it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_whole(answer))
    with ThreadPoolExecutor(1) as other:
        return other.submit(copy_context().run, asyncio.run, _whole(answer)).result()


async def _whole(answer: Awaitable[Mapping[str, Any]]) -> Mapping[str, Any]:
    return await answer


class Entering(Protocol):
    """Something that is entered and left."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


def decorated(make: Callable[[], Entering], function: F) -> F:
    """A function, each call of which is inside what `make` makes; of a generator, each step is."""
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def stream(*args: Any, **kwargs: Any) -> Iterator[Any]:
            # Whoever takes the steps keeps its own scope in between.
            outer = current.get()
            with make():
                inner = current.get()
                pieces = function(*args, **kwargs)
                current.set(outer)
                try:
                    while True:
                        outer = current.get()
                        current.set(inner)
                        try:
                            piece = next(pieces)
                        except StopIteration:
                            return
                        finally:
                            current.set(outer)
                        yield piece
                finally:
                    outer = current.get()
                    current.set(inner)
                    try:
                        pieces.close()
                    finally:
                        current.set(outer)

        return cast("F", stream)

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return cast("F", inside)
