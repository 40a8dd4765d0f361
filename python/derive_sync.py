"""Makes `stayput/sync` from `stayput/_face`: the same face without `await`.

python derive_sync.py            writes them
python derive_sync.py --check    says whether they are as they should be
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent / "stayput"

# In this order.
WORDS = [
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


def derived() -> dict[str, str]:
    """What should be in each file."""
    return {path.name: twin(path) for path in sorted((HERE / "_face").glob("*.py"))}


def twin(path: Path) -> str:
    """The same without `await`."""
    text = path.read_text()
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    if path.name == "__init__.py":
        text = re.sub(r'\A""".*?"""', '"""Hubs and sessions, without `await`."""', text, count=1)
    made = f"# Made from `_face/{path.name}` by `derive_sync.py`; change that one.\n"
    return made + text


def main() -> int:
    target = HERE / "sync"
    if "--check" not in sys.argv[1:]:
        target.mkdir(exist_ok=True)
        for name, text in derived().items():
            (target / name).write_text(text)
        return 0
    if {path.name: path.read_text() for path in target.glob("*.py")} == derived():
        return 0
    sys.stderr.write("stayput/sync is not what derive_sync.py makes of stayput/_face: run it\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
