"""rensa's batch call on shingles made in Python, as its documentation asks for them.

python rensa_signatures.py DOCUMENTS NUM_PERM NGRAM    prints {"seconds", "hashing": without the shingling}
"""

from __future__ import annotations

import json
import re
import sys

from common import cpu_seconds, documents
from rensa import RMinHash

WORD = re.compile(r"\w+")


def shingles(text: str, ngram: int) -> list[str]:
    words = WORD.findall(text.lower())
    return [" ".join(words[i : i + ngram]) for i in range(max(1, len(words) - ngram + 1))]


def main() -> None:
    _, texts = documents(sys.argv[1])
    num_perm, ngram = int(sys.argv[2]), int(sys.argv[3])

    def sign(some: list[list[str]]) -> object:
        return RMinHash.digest_matrix_from_token_sets(some, num_perm=num_perm, seed=1)

    sign([shingles(texts[0], ngram)])
    made: list[list[str]] = []
    cutting = cpu_seconds(lambda: made.extend(shingles(text, ngram) for text in texts))
    hashing = cpu_seconds(lambda: sign(made))
    print(json.dumps({"seconds": cutting + hashing, "hashing": hashing}))


if __name__ == "__main__":
    main()
