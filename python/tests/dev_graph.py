"""Graph for `langgraph dev`, with tools of Stayput that are created without `await`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from agents import build_graph  # noqa: E402

from stayput import sync  # noqa: E402

hub = sync.Hub.from_config(json.loads(os.environ["STAYPUT_TEST_CONFIG"]))
# Without a memory: `langgraph dev` brings its own.
graph = build_graph(hub.langchain_tools(key="thread_id")).compile()
