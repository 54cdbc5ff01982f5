"""Rewrites the golden values of tests/pipeline/filter/variants/golden.json with the tools' own code, each in an
environment of its own: `python -m bench._variants_golden`. The texts stay as they stand in the file."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa

from bench.peers import DATATROVE, ROOT, Peer, ask, write_documents

GOLDEN = ROOT / "tests/pipeline/filter/variants/golden.json"
FILTERS = DATATROVE._replace(script="datatrove_decisions.py")
# Their dependencies are heavy and not what is asked.
DOLMA = Peer("dolma", ("dolma==1.2.1", "--no-deps"), "gopher_values.py")
NEMO = Peer(
    "nemo", ("nemo-curator==1.4.0", "regex==2026.11.15", "loguru==0.7.3", "--no-deps"), "gopher_values.py"
)
DIGITS = 12  # of each value: the last bits of a sum are no definition


def main() -> None:
    """Ask the tools and write the file."""
    cases = json.loads(GOLDEN.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        names = [case["name"] for case in cases]
        path = write_documents(
            Path(folder) / "texts.jsonl", names, pa.array([case["text"] for case in cases])
        )
        words = ask(FILTERS, "words", path)
        values = [ask(FILTERS, "values", path), ask(DOLMA, "dolma", path), ask(NEMO, "nemo", path)]
    for row, case in enumerate(cases):
        case["words"] = words[row]
        case["values"] = {name: round(value, DIGITS) for tool in values for name, value in tool[row].items()}
    GOLDEN.write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
