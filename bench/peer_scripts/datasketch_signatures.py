"""What one writes with datasketch: a regular expression for words, joined shingles, one update a document.

python datasketch_signatures.py DOCUMENTS NUM_PERM NGRAM    prints {"seconds": CPU seconds}
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import xxhash
from common import cpu_seconds, documents
from datasketch import MinHash

WORD = re.compile(r"\w+")


def signature(text: str, num_perm: int, ngram: int) -> Any:
    """uint32[num_perm], by the faster of datasketch's schemes."""
    words = WORD.findall(text.lower())
    grams = {" ".join(words[i : i + ngram]) for i in range(max(1, len(words) - ngram + 1))}
    sketch = MinHash(num_perm=num_perm, seed=1, scheme="affine32", hashfunc=xxhash.xxh32_intdigest)
    sketch.update_batch([gram.encode() for gram in grams])
    return sketch.hashvalues


def main() -> None:
    _, texts = documents(sys.argv[1])
    num_perm, ngram = int(sys.argv[2]), int(sys.argv[3])
    signature(texts[0], num_perm, ngram)
    seconds = cpu_seconds(lambda: [signature(text, num_perm, ngram) for text in texts])
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
