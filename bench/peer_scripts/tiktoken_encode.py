"""tiktoken with a vocabulary and a pattern of ours: every token a mergeable rank, so that ids are comparable.

python tiktoken_encode.py DOCUMENTS TOKENIZER_JSON PATTERN
prints {"seconds", "tokens", "digests": one of the ids of each document}
"""

from __future__ import annotations

import array
import hashlib
import json
import sys
import time
from pathlib import Path

import tiktoken
from common import documents


def alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def main() -> None:
    _, texts = documents(sys.argv[1])
    model = json.loads(Path(sys.argv[2]).read_text("utf-8"))["model"]
    stands_for = alphabet()
    ranks = {
        bytes(stands_for[char] for char in token): index
        for token, index in model["vocab"].items()
        if all(char in stands_for for char in token) and not token.startswith("<|")
    }
    encoding = tiktoken.Encoding("ours", pat_str=sys.argv[3], mergeable_ranks=ranks, special_tokens={})
    encoding.encode_ordinary(texts[0][:1000])
    start = time.process_time()
    ids = [encoding.encode_ordinary(text) for text in texts]
    seconds = time.process_time() - start
    digests = [hashlib.sha256(array.array("I", row).tobytes()).hexdigest()[:16] for row in ids]
    print(json.dumps({"seconds": seconds, "tokens": sum(map(len, ids)), "digests": digests}))


if __name__ == "__main__":
    main()
