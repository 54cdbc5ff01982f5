"""How well each decision of the pipeline holds on labelled text that it was neither built nor tuned on, with peers on the same text.

`python -m bench decisions` measures every task on the labelled sets beside this checkout: what is trained is trained without
the set that it is judged on. `python -m bench decisions --task toxicity --labelled FILE` gives the same table for FILE.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from pkgutil import resolve_name

from bench._decisions import table
from bench.natural import DATA

# Task -> the function of (FILE or None) that gives its rows.
TASKS = {
    "toxicity": "bench._decide_toxicity:rows",
    "telephone": "bench._decide_pii:telephone",
    "identifiers": "bench._decide_pii:identifiers",
    "language": "bench._decide_language:rows",
    "decontamination": "bench._decide_decontamination:rows",
    "near_duplicates": "bench._decide_near_duplicates:rows",
    "quality": "bench._decide_quality:rows",
}


def main() -> None:
    """Print the table of all tasks, or of one."""
    parser = argparse.ArgumentParser(prog="python -m bench decisions", description=__doc__)
    parser.add_argument("--task", choices=TASKS, help="only this decision (default: all)")
    parser.add_argument(
        "--labelled",
        type=Path,
        metavar="FILE",
        help="your own labelled set instead of the shared ones; needs --task",
    )
    given = parser.parse_args()
    if given.labelled is not None and given.task is None:
        sys.exit(
            f"--labelled needs --task: what are the labels of {given.labelled}? One of {', '.join(TASKS)}"
        )
    if given.labelled is None and not DATA.is_dir():
        print("not measured: the labelled sets (../shared/data) are not beside this checkout")
        return
    rows = [
        row
        for task in ([given.task] if given.task else TASKS)
        for row in resolve_name(TASKS[task])(given.labelled)
    ]
    print(table(rows))


if __name__ == "__main__":
    main()
