"""The bench of averages: its rows are what they say, and whether the expected order held is read off the figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import averages
from bench.averages import AVERAGE, COSINE, LAWA, LINEAR, LONG, SQRT, TRUNK
from corpusmill.common.storage import Folder
from corpusmill.schemas.phases import Averaged
from corpusmill.train.log.metrics import read_metrics
from corpusmill.train.run_folder import open_run
from corpusmill.train.tools.continual.average import Run, average
from tests.train.conftest import write_shards


def test_its_rows_are_of_one_trunk(tmp_path: Path) -> None:
    shards = write_shards(Folder(tmp_path / "shards")).url
    tiny = {
        "name": "tiny", "output": "unused",
        "data": {"shards": shards, "sequence_length": 24, "global_batch": 8, "micro_batch": 4, "window_blocks": 2},
        "model": {"dim": 16, "layers": 1, "heads": 2, "vocab_multiple": 8}, "optimizer": {"lr": 3e-2},
        "schedule": {"steps": 100, "warmup_steps": 20}, "precision": "fp32", "device": "cpu",
    }  # fmt: skip
    (tmp_path / "tiny.yaml").write_text(json.dumps(tiny))
    found = averages.of_seed(str(tmp_path / "tiny.yaml"), shards, str(tmp_path / "1"), 1, steps=80)
    assert list(found) == [TRUNK, AVERAGE, LAWA, LINEAR, SQRT, LONG, COSINE] and list(averages.COSTS) == list(
        found
    )
    # The same as the command's, whose mean counts each source alike.
    config, folder = open_run(tmp_path / "1/trunk")
    for name, row, last, ema in (("lawa", LAWA, 5, False), ("ema", AVERAGE, 5, True)):
        made = Averaged.model_validate(
            average([Run(config, folder)], Folder(tmp_path / name), last, ema=ema).model_dump()
        )
        assert made.average and made.average.value == pytest.approx(found[row], rel=0.02), row
    assert [member.step for member in average([Run(config, folder)], Folder(tmp_path / "again")).members] == [
        64,
        68,
        72,
        76,
        80,
    ]
    rates = [row["lr"] for row in read_metrics(Folder(tmp_path / "1/trunk-branch-72-linear-8"))]
    assert rates[-1] == 0 and open_run(tmp_path / "1/trunk-branch-72-linear-8")[0].branch is not None
    assert len({round(value, 9) for value in found.values()}) == len(found)


def test_whether_the_order_held_is_read_off_the_figures() -> None:
    rows = {TRUNK: 2.0, AVERAGE: 1.9, LAWA: 1.8, LINEAR: 1.7, SQRT: 1.7, COSINE: 1.75}
    good = [
        {row: value + 0.001 * number * (row == TRUNK) for row, value in rows.items()} for number in range(3)
    ]
    text = averages.lines(good)
    assert (
        "| LAWA of its last 5 | none | 1.8000 | 1.8000, 1.8000, 1.8000 | -0.2010 | -0.2035 to -0.1985 |"
        in text
    )
    assert f"{LINEAR} < {LAWA}: in 3 of 3 seeds, -0.1000, -0.1000 to -0.1000: held." in text
    mixed = [
        {**one, LINEAR: one[LAWA] + change} for one, change in zip(good, (-0.1, 0.05, -0.1), strict=True)
    ]
    worse = [{**one, LINEAR: one[LAWA] + 0.1} for one in good]
    assert averages.orders(worse)[1].endswith(
        "in 0 of 3 seeds, +0.1000, +0.1000 to +0.1000: did not hold, the other way round."
    )
    assert "in 2 of 3 seeds" in averages.orders(mixed)[1] and averages.orders(mixed)[1].endswith("not shown.")
