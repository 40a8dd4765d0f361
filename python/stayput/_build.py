"""Arguments of the native half: configurations and JSON. Closes all hubs at the end of the interpreter."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _core
from ._errors import ConfigError, InvalidInputError
from ._types import Handlers

SHUTDOWN_TIMEOUT = 10.0
"""Seconds that hubs have to close at the end of the interpreter."""


__version__ = _core.__version__


def build_hub(
    config: str | os.PathLike[str] | Mapping[str, Any], settings: dict[str, Any], handlers: Handlers
) -> _core.Hub:
    """Builds a hub with the servers of a file, or of a mapping of the same form."""
    settings = {**settings, "handlers": list(handlers)}
    if isinstance(config, Mapping):
        return _core.Hub.build(None, config_text(config), settings)
    return _core.Hub.build(os.fspath(config), None, settings)


def config_text(config: Mapping[str, Any]) -> tuple[str, Path]:
    """Returns the configuration as text, and its origin: relative paths are resolved against the working directory."""
    try:
        return json.dumps(config), Path.cwd() / "<config>"
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the configuration is no JSON: {error}") from error


def encode_arguments(given: Any, named: dict[str, Any]) -> str:
    """Encodes the arguments of a call, from a mapping or by name, as JSON."""
    if given is not None and not isinstance(given, Mapping):
        kind: str = type(given).__name__
        raise InvalidInputError(f"give arguments by name, `text=…`, or in a mapping, `{{'text': …}}`, and not as a {kind}")
    try:
        return _encode({**given, **named} if given else named)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"the arguments are no JSON: {error}") from error


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


# In a forked child the native half leaves the hubs of the parent open.
atexit.register(_core.close_all, SHUTDOWN_TIMEOUT)
