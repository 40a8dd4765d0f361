"""Exceptions. Most messages come from the Rust library."""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "AccessDenied",
    "AtCapacity",
    "CallFailed",
    "CallTimedOut",
    "ConfigError",
    "HubClosed",
    "HubForked",
    "InputRequired",
    "InvalidInput",
    "NameTaken",
    "NoSession",
    "ProtocolError",
    "ServerFailed",
    "SessionEnded",
    "SessionUnavailable",
    "StateLost",
    "StayputError",
    "UnknownServer",
    "UnknownSession",
]


class StayputError(Exception):
    """Base of all exceptions of this package.

    >>> error = StayputError("it went wrong")
    >>> error.kind, error.may_have_run
    ('invalid_input', False)
    """

    kind: str = "invalid_input"
    """Kind of the error, as a stable word for programs."""
    may_have_run: bool = False
    """Whether the call may have run though there is no result."""
    server: str | None = None
    """Server that the error concerns, if any."""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self.__dict__.update(details)


class StateLost(StayputError):
    """The state behind the session was lost. The call did not run, unless `may_have_run`; the next one runs on a fresh
    state."""

    generation: int = 0
    """Generation that begins. It counts the losses."""
    reason: str = ""
    """Reason in one word: `exited`, `verdict`, `expired`, …"""


class NoSession(StayputError):
    """The call is in no scope, names no session, and there is no default session."""


class UnknownServer(StayputError):
    """There is no server of this name."""


class AccessDenied(StayputError):
    """The sub-agent may not use the server, or the configuration does not allow the tool."""


class UnknownSession(StayputError):
    """There is no session of this name."""


class NameTaken(StayputError):
    """There already is a session of this name."""

    name: str = ""
    """The name."""


class SessionEnded(StayputError):
    """The session was ended."""

    session: str = ""
    """Id of the session."""


class HubClosed(StayputError):
    """The hub was closed."""


class HubForked(StayputError):
    """The hub belongs to the process that this one was forked from. Build another one here."""


class AtCapacity(StayputError):
    """The limit of processes, links or sessions is reached. A later attempt can succeed."""


class ServerFailed(StayputError):
    """The server cannot be started or reached."""


class CallFailed(StayputError):
    """The call got no answer."""


class CallTimedOut(CallFailed, TimeoutError):
    """The call got no answer in time."""


class ProtocolError(StayputError):
    """The server answered with a JSON-RPC error."""

    code: int = 0
    """Code of the error."""
    raw: str = "{}"
    """The whole error object, as JSON."""

    @property
    def data(self) -> Any:
        """Additional data of the error."""
        return json.loads(self.raw).get("data")


class InputRequired(StayputError):
    """The server requires input that no handler provides."""


class ConfigError(StayputError, ValueError):
    """The configuration is wrong."""


class SessionUnavailable(StayputError):
    """The session cannot be opened."""


class InvalidInput(StayputError, ValueError):
    """A value cannot be used: an argument, a setting, or a result that does not fit."""


_KINDS: dict[str, type[StayputError]] = {
    "state_lost": StateLost,
    "no_session": NoSession,
    "unknown_server": UnknownServer,
    "denied": AccessDenied,
    "unknown_session": UnknownSession,
    "name_taken": NameTaken,
    "session_ended": SessionEnded,
    "hub_closed": HubClosed,
    "hub_forked": HubForked,
    "at_capacity": AtCapacity,
    "server_failed": ServerFailed,
    "call_failed": CallFailed,
    "timed_out": CallTimedOut,
    "protocol_error": ProtocolError,
    "input_required": InputRequired,
    "config": ConfigError,
    "session_unavailable": SessionUnavailable,
    "invalid_input": InvalidInput,
}


_MESSAGES = {
    "no_session": "this call belongs to no session: make it inside `hub.run()` or `hub.session(…)`, on a session, "
    "or after `hub.enable_default_session()`",
}
"""Messages that differ from the Rust library, because they mention Python names."""


def make_error(kind: str, message: str, details: dict[str, Any]) -> StayputError:
    """Creates the exception of a kind. The native half calls this."""
    message = _MESSAGES.get(kind, message)
    return _KINDS.get(kind, StayputError)(message, kind=kind, **details)
