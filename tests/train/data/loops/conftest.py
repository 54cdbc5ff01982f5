from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import NotMeasured, packages
from tests.conftest import shared

PACKAGES = (
    "accelerate==1.15.0", "lightning-utilities==0.15.3", "pytorch-lightning==2.6.6", "torchdata==0.11.0",
    "torchmetrics==1.9.0", "transformers==5.24.0",
)  # fmt: skip


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the packages, for `parts.use`; the test is skipped where they cannot be had."""

    def make(folder: Path) -> None:
        try:
            (folder / "path").write_text(str(packages("loops", PACKAGES)))
        except NotMeasured as reason:
            (folder / "reason").write_text(str(reason))

    made = shared(tmp_path_factory, "loops", make)
    if not (made / "path").exists():
        pytest.skip(f"{', '.join(PACKAGES)}: {(made / 'reason').read_text()}")
    return (made / "path").read_text()
