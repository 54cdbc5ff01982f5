"""alt-profanity-check's probability of each text of a file: a JSON list of texts in, a JSON list of numbers out."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    """Print the probabilities."""
    from profanity_check import predict_prob

    texts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps(predict_prob(texts).tolist()))


if __name__ == "__main__":
    main()
