"""`corpusmill calibration`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.train.commands.options import Json, Run, Set, print_json, print_table
from corpusmill.train.commands.results import write_page

if TYPE_CHECKING:
    from corpusmill.schemas.evaluation import Calibration, CalibrationResults


def calibration(
    run: Run,
    next_token: Annotated[
        bool, typer.Option("--next-token", help="also of the likeliest next token, over the validation split")
    ] = False,
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Whether the model is right as often as its probabilities say: of its tasks' choices, and of next tokens."""
    from corpusmill.train.evaluate.calibration import calibrate
    from corpusmill.train.run_folder import open_run

    config, folder = open_run(run, set_)
    found = calibrate(config, folder, next_token)
    write_page(config, folder)
    if json_:
        print_json(found.model_dump(mode="json"))
        return
    print_table(overview(found), f"{found.name}: calibration")
    for name, one in {**found.tasks, **found.next_token}.items():
        print_table(bins(one), f"{name}: reliability")


def overview(found: CalibrationResults) -> list[list[str]]:
    """Heading, and a line for each task and source."""
    lines = [
        [
            "of",
            "n",
            "accuracy",
            "confidence",
            "ECE",
            "if calibrated",
            "ECE, equal width",
            "Brier",
            "NLL",
            "temperature",
            "ECE then",
        ]
    ]
    for kind, each in (("", found.tasks), ("next token, ", found.next_token)):
        for name, one in each.items():
            means = [f"{mean.value:.4f}" if mean else "" for mean in (one.brier, one.nll)]
            fitted = (
                [f"{one.fitted.temperature:.3f}", f"{one.fitted.ece_after:.4f}"] if one.fitted else ["", ""]
            )
            lines.append(
                [
                    kind + name, f"{one.n:,}", f"{one.accuracy:.4f}", f"{one.confidence:.4f}", f"{one.ece:.4f}",
                    f"{one.ece_calibrated:.4f}, < {one.ece_calibrated_high:.4f}", f"{one.ece_width:.4f}", *means, *fitted,
                ]
            )  # fmt: skip
    return lines


def bins(one: Calibration) -> list[list[str]]:
    """The reliability table."""
    lines = [["confidence", "mean", "accuracy", "n"]]
    for b in one.bins:
        lines.append([f"{b.low:.4f} to {b.high:.4f}", f"{b.confidence:.4f}", f"{b.accuracy:.4f}", f"{b.n:,}"])
    return lines
