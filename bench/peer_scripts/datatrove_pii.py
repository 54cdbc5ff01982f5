"""datatrove's PIIFormatter (e-mail and public IPv4) at its defaults.

python datatrove_pii.py DOCUMENTS    prints {"seconds", "texts": what it makes of each document that it changes}
"""

from __future__ import annotations

import json
import sys

from common import cpu_seconds, documents
from datatrove.pipeline.formatters.pii import PIIFormatter


def main() -> None:
    ids, texts = documents(sys.argv[1])
    formatter = PIIFormatter()
    formatter.format("warm up: ann@example.org 8.8.8.8")
    made: list[str] = []
    seconds = cpu_seconds(lambda: made.extend(formatter.format(text) for text in texts))
    changed = {name: new for name, old, new in zip(ids, texts, made, strict=True) if new != old}
    print(json.dumps({"seconds": seconds, "texts": changed}))


if __name__ == "__main__":
    main()
