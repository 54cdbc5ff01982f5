"""Makes `datatrove.json` again, with datatrove itself, in an environment of its own:

    python3.11 -m venv dt && dt/bin/pip install datatrove==0.10.1 spacy==3.8.18 regex nltk tokenizers "xxhash<4"
    dt/bin/python tests/pipeline/text/golden/make.py

Python 3.11 for its Unicode 14.0.0; xxhash below 4 because datatrove 0.10.1 passes it strings.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import unicodedata
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from datatrove.pipeline.dedup.minhash import MinhashDedupSignature
from datatrove.utils.text import simplify_text
from texts import texts

FULL = 12  # texts whose signatures are written in full


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def main() -> None:
    step = MinhashDedupSignature(tempfile.mkdtemp())
    documents: list[dict[str, Any]] = []
    full = 0
    for text in texts():
        simple = simplify_text(text, step.config.norm_config)
        words = step.word_tokenizer.word_tokenize(simple)
        found: dict[str, Any] = {"simplified": digest(" ".join(simple.split()).encode())}
        if words != simple.split():
            found["words"] = " ".join(words)
        shingles = step.get_shingles(text)
        if len(shingles):
            values = np.array(step.get_signature(shingles), "<u8").ravel()
            found["signature"] = digest(values.tobytes())
            if full < FULL and len(documents) % 20 == 7:
                found["values"] = values.tolist()
                full += 1
        documents.append(found)
    packages = {name: version(name) for name in ("datatrove", "spacy", "xxhash", "regex", "numpy")}
    golden = {"packages": {**packages, "unicode": unicodedata.unidata_version}, "documents": documents}
    lines = [json.dumps(found, ensure_ascii=True) for found in documents]
    head = json.dumps(golden["packages"])
    Path(__file__).with_name("datatrove.json").write_text(
        f'{{"packages": {head}, "documents": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
