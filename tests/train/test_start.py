"""What a training process imports before its first step."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import IMPORT_PATH

MAKE = """
import sys
import torch
from corpusmill.schemas.model import ModelConfig
from corpusmill.schemas.optim import OptimizerConfig
from corpusmill.train.model.decoder import Decoder
from corpusmill.train.optim.make import make_optimizer
config = ModelConfig(dim=16, layers=1, heads=2)
with torch.device("meta"):
    Decoder(config, 64)
model = Decoder(config, 64)
optimizer = make_optimizer(model, OptimizerConfig(kind=sys.argv[1]))
tokens = torch.zeros(1, 8, dtype=torch.long)
model(tokens, labels=tokens).sum().backward()
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
print(sorted(name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules))
"""


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_where_nothing_is_compiled_the_compiler_is_not_imported(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAKE, kind], env={**os.environ, "PYTHONPATH": IMPORT_PATH}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
