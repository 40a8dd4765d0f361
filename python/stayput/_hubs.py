"""All hubs of this process, which are closed when it ends."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _core
from ._errors import ConfigError, Invalid
from ._types import Handlers

FAREWELL = 10.0
"""For how many seconds everything is waited for at the end of the interpreter."""


def built(
    config: str | os.PathLike[str] | Mapping[str, Any], settings: dict[str, Any], handlers: Handlers
) -> _core.Hub:
    """A hub with the servers of a file, or of a mapping in its form."""
    settings = {**settings, "handlers": list(handlers)}
    if isinstance(config, Mapping):
        return _core.Hub.build(None, entry(config), settings)
    return _core.Hub.build(os.fspath(config), None, settings)


def entry(config: Mapping[str, Any]) -> tuple[str, Path]:
    """What could stand in a file, as text, and where that would be: paths are relative to where we are."""
    try:
        return json.dumps(config), Path.cwd() / "<config>"
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the configuration is no JSON: {error}") from error


def arguments(given: Any, named: dict[str, Any]) -> str:
    """The arguments of a call, in a mapping or by name, as JSON."""
    if given is not None and not isinstance(given, Mapping):
        kind: str = type(given).__name__
        raise Invalid(f"arguments are given by name, `text=…`, or in a mapping, `{{'text': …}}`, and not as a {kind}")
    try:
        return _encode({**given, **named} if given else named)
    except (TypeError, ValueError) as error:
        raise Invalid(f"the arguments are no JSON: {error}") from error


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


# The hubs of a fork's parent are not its own to close, and the native half knows which those are.
atexit.register(_core.farewell, FAREWELL)
