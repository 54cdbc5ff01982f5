"""Muon's matrices are dealt out: each is orthogonalised by one process, and the weights are those of one process."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from corpusmill.train.parallel.deal import dealt, levels_of
from tests.forks import launch

MUON: dict[str, Any] = {"optimizer": {"kind": "muon"}}
UNEVEN = {
    **MUON,
    "model": {"ffn_dim": 50},
}  # rows of 13, 13, 13 and 11; the last shard of a dimension of 32 is whole
MOE = {**MUON, "model": {"layers": 2, "moe": {"experts": 4, "top_k": 2, "ffn_dim": 16, "bias_rate": 0.01}}}
SMALL = {**MUON, "model": {"layers": 1}}  # fewer matrices of a shape than processes

# name, layout, settings; matrices of the model; those of the busiest process at most
TWO = [
    (["ddp", {}, MUON], 28, 14), (["zero 1", {"zero": 1}, UNEVEN], 28, 14), (["zero 3", {"zero": 3}, UNEVEN], 28, 14),
    (["tensor", {"tensor": 2}, MUON], 28, 14), (["pipeline", {"pipeline": 2}, MUON], 28, 14),
    (["experts", {"zero": 1, "expert": 2}, MOE], 34, 17),
]  # fmt: skip
FOUR = [
    (["ddp of 4", {}, {**MUON, "micro_batch": 1}], 28, 7), (["zero 2 of 4", {"zero": 2}, UNEVEN], 28, 7),
    (["hybrid", {"zero": 3, "replicate": 2}, UNEVEN], 28, 7), (["few", {"zero": 3}, SMALL], 7, 3),
    (["few x hybrid", {"zero": 3, "replicate": 2}, SMALL], 7, 4),
    (["ddp x tensor", {"tensor": 2}, MUON], 28, 7), (["zero 3 x tensor", {"zero": 3, "tensor": 2}, MUON], 28, 7),
    (["experts x hybrid", {"zero": 2, "expert": 2, "replicate": 2}, MOE], 34, 9),
]  # fmt: skip


@pytest.mark.parametrize(("processes", "cases"), [(2, TWO), (4, FOUR)], ids=["2", "4"])
def test_each_matrix_is_orthogonalised_by_one_process(processes: int, cases: list[Any]) -> None:
    done = launch(processes, "tests.train.parallel.dealing", json.dumps([case for case, _, _ in cases]))
    everything = done.stdout + done.stderr
    assert done.returncode == 0 and "differs" not in done.stdout, everything
    found = [line.replace(":", ",").split(", ") for line in done.stdout.splitlines()]
    assert [(name, count) for name, count, _ in found] == [
        (case[0], f"{n} matrices") for case, n, _ in cases
    ], everything
    for (name, _, busiest), (_, _, most) in zip(found, cases, strict=True):
        assert int(busiest.split()[0]) <= most, (name, everything)


def test_one_process_does_everything_itself() -> None:
    parameter = torch.nn.Parameter(torch.ones(3, 2))
    assert levels_of(parameter) == ()
    made = dealt([torch.ones(3, 2), torch.zeros(3, 2)], (), lambda whole: [x + 1 for x in whole])
    assert [float(x[0, 0]) for x in made] == [2.0, 1.0] and dealt([], (), lambda whole: whole) == []
