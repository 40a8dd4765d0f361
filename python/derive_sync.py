"""Generates `stayput/sync` from `stayput/_async`: the same API without `await`.

python derive_sync.py            writes the files
python derive_sync.py --check    fails if a file is out of date
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent / "stayput"

# Applied in this order.
REPLACEMENTS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait\s+", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\b__aiter__\b", "__iter__"),
    (r"\b__anext__\b", "__next__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b_aio\b", "_blocking"),
    (r"\bainvoke\b", "invoke"),
    (r"asyncio\.run\(main\(\)\)", "main()"),
    (r"<stayput\.", "<stayput.sync."),
]


def generate_all() -> dict[str, str]:
    """Returns the text of each file by name."""
    return {path.name: generate(path) for path in sorted((HERE / "_async").glob("*.py"))}


def generate(path: Path) -> str:
    """Returns the text of a file without `await`."""
    text = path.read_text()
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    if path.name == "__init__.py":
        text = re.sub(r'\A""".*?"""', '"""Hubs and sessions without `await`."""', text, count=1)
    header = f"# Generated from `_async/{path.name}` by `derive_sync.py`; edit that file.\n"
    return header + text


def main() -> int:
    target = HERE / "sync"
    if "--check" not in sys.argv[1:]:
        target.mkdir(exist_ok=True)
        for name, text in generate_all().items():
            (target / name).write_text(text)
        return 0
    if {path.name: path.read_text() for path in target.glob("*.py")} == generate_all():
        return 0
    sys.stderr.write("stayput/sync is out of date: run derive_sync.py\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
