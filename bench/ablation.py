"""`corpusmill ablate` on corpora whose answer is known: how often its verdict is right."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench import _bare
from bench._planted_truth import PASSAGES, cases

REPETITIONS, DRAWS, SMALLEST = 20, 8, 0.005


def main() -> None:
    """Print Markdown."""
    argparse.ArgumentParser(
        prog="python -m bench.ablation", description=f"{__doc__} About half an hour."
    ).parse_args()
    _bare.stand_in()
    from corpusmill.ablate.arms import arms_of
    from corpusmill.ablate.run import run
    from corpusmill.common.config import validate
    from corpusmill.schemas.ablation import ArmDifference
    from corpusmill.schemas.recipe import Recipe

    found: dict[str, list[ArmDifference]] = {}
    signs: dict[str, int] = {}
    for seed in range(REPETITIONS):
        with tempfile.TemporaryDirectory() as folder:
            for case in cases(Path(folder), seed):
                recipe = validate(Recipe, case.recipe, case.name)
                out = Path(folder) / f"{case.name}-out"
                arms = arms_of(recipe, [case.stage], [])
                result = run(recipe, arms, {}, out, DRAWS, SMALLEST, 0, lambda _: None)
                control, arm = (one.difference for one in result.arms[1:])
                assert control is not None
                assert arm is not None
                found.setdefault(case.name, []).append(arm)
                found.setdefault("(control)", []).append(control)
                signs[case.name] = case.sign
    sys.stdout.write(
        f"{PASSAGES} passages of the example corpus's books, in another order and with other plants in each of {REPETITIONS} repetitions;"
        f" the arm without the stage, trigrams, {DRAWS} draws. Right: the interval lies above 0 where the text is worse, and holds 0 where"
        " nothing should change.\n\n"
        "| planted | right answer | right | difference, median | verdicts |\n|---|---|---:|---:|---|\n"
    )
    for name, each in found.items():
        sign = signs.get(name, 0)
        right = sum(d.low > 0 if sign else d.low <= 0 <= d.high for d in each)
        verdicts = ", ".join(f"{word} {n}" for word, n in Counter(d.verdict for d in each).most_common())
        sys.stdout.write(
            f"| {name} | {'worse' if sign else 'no difference'} | {right} of {len(each)} |"
            f" {statistics.median(d.value for d in each):+.4f} | {verdicts} |\n"
        )


if __name__ == "__main__":
    main()
