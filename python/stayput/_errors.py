"""What can go wrong. The sentences are those of the library."""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "AtCapacity",
    "CallFailed",
    "CallTimedOut",
    "ConfigError",
    "Denied",
    "HubClosed",
    "HubForked",
    "Invalid",
    "NameTaken",
    "NoSession",
    "Refused",
    "ServerFailed",
    "SessionEnded",
    "SessionUnavailable",
    "StateLost",
    "StayputError",
    "Unanswered",
    "UnknownServer",
    "UnknownSession",
]


class StayputError(Exception):
    """Why there is no result. Everything that this package raises is one.

    >>> error = StayputError("it went wrong")
    >>> error.kind, error.may_have_run
    ('invalid', False)
    """

    kind: str = "invalid"
    """What went wrong, in one word for programs."""
    may_have_run: bool = False
    """Whether the call can have been carried out though there is no result."""
    server: str | None = None
    """The server it is about, if it is about one."""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self.__dict__.update(details)


class StateLost(StayputError):
    """What was behind the session is gone. The call was not made, or is not known to have been; the next one runs
    on a fresh state."""

    generation: int = 0
    """Counts how often it was lost and begun anew."""
    reason: str = ""
    """Why, in one word: `exited`, `verdict`, `expired`, …"""


class NoSession(StayputError):
    """Nothing says which session a call belongs to."""


class UnknownServer(StayputError):
    """There is no server of this name."""


class Denied(StayputError):
    """This sub-agent may not use the server, or nobody may use the tool."""


class UnknownSession(StayputError):
    """There is no session of this name."""


class NameTaken(StayputError):
    """There is a session of this name already."""

    name: str = ""
    """The name."""


class SessionEnded(StayputError):
    """The session was ended."""

    session: str = ""
    """Its id."""


class HubClosed(StayputError):
    """The hub was closed."""


class HubForked(StayputError):
    """The hub is of the process that this one was forked from. Build another one here."""


class AtCapacity(StayputError):
    """There are as many processes, links or sessions as there may be. Later there can be room."""


class ServerFailed(StayputError):
    """The server cannot be reached or started."""


class CallFailed(StayputError):
    """The call has no answer."""


class CallTimedOut(CallFailed, TimeoutError):
    """The call has no answer in time."""


class Refused(StayputError):
    """The server answered with an error of the protocol."""

    code: int = 0
    """Its code."""
    raw: str = "{}"
    """The whole error, as JSON."""

    @property
    def data(self) -> Any:
        """What the server says about it beside the sentence."""
        return json.loads(self.raw).get("data")


class Unanswered(StayputError):
    """The server wants to know something that nobody here tells it."""


class ConfigError(StayputError, ValueError):
    """The configuration cannot be used."""


class SessionUnavailable(StayputError):
    """The session cannot be opened."""


class Invalid(StayputError, ValueError):
    """Something that was given makes no sense."""


_KINDS: dict[str, type[StayputError]] = {
    "state_lost": StateLost,
    "no_session": NoSession,
    "unknown_server": UnknownServer,
    "denied": Denied,
    "unknown_session": UnknownSession,
    "taken": NameTaken,
    "ended": SessionEnded,
    "closed": HubClosed,
    "forked": HubForked,
    "at_capacity": AtCapacity,
    "server_failed": ServerFailed,
    "call_failed": CallFailed,
    "timed_out": CallTimedOut,
    "refused": Refused,
    "unanswered": Unanswered,
    "config": ConfigError,
    "session": SessionUnavailable,
    "invalid": Invalid,
}


_HERE = {
    "no_session": "this call belongs to no session: make it inside `hub.run()` or `hub.session(…)`, on such a session itself, "
    "or after `hub.automatic()`",
}
"""What is called otherwise here than in the library."""


def made(kind: str, message: str, details: dict[str, Any]) -> StayputError:
    """The exception of a kind. The native half calls this."""
    message = _HERE.get(kind, message)
    return _KINDS.get(kind, StayputError)(message, kind=kind, **details)
