"""What a first look at all blocks says about each of them: the chances of its neighbours, and of all text of the elements above it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from corpusmill.common.kernel_cache import compiled
from corpusmill.pipeline.ingest.readers.main_text.scan import B_CHARS, OWNER, PARENT, Scanned

STEPS: Final = (-3, -2, -1, 1, 2, 3)
LEVELS = 6
NAMES: Final = (
    "chance", *(f"chance_{step:+d}" for step in STEPS),
    *(f"{name}_{level}" for level in range(LEVELS) for name in ("chance_in", "share_of_main_in")),
    "chance_of_page", "main_before", "main_chars", "best_chance",
)  # fmt: skip


def context(page: Scanned, chances: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """float32[blocks, len(NAMES)] from the chance of each block, float32[blocks]."""
    out = np.zeros((len(page.blocks), len(NAMES)), np.float32)
    if len(page.blocks):
        _context(page.nodes, page.blocks, chances, np.array(STEPS), out)
    return out


@compiled
def _context(nodes: Any, blocks: Any, chances: Any, steps: Any, out: Any) -> None:
    main = np.zeros(len(nodes))
    chars = np.zeros(len(nodes))
    best = 0.0
    for b in range(len(blocks)):
        size = max(blocks[b, B_CHARS], 1)
        main[blocks[b, OWNER]] += size * chances[b]
        chars[blocks[b, OWNER]] += size
        best = max(best, chances[b])
    for node in range(len(nodes) - 1, 0, -1):
        main[nodes[node, PARENT]] += main[node]
        chars[nodes[node, PARENT]] += chars[node]
    whole = max(main[0], 1e-9)
    before = 0.0
    for b in range(len(blocks)):
        row = out[b]
        row[0] = chances[b]
        for k in range(len(steps)):
            other = b + steps[k]
            row[1 + k] = chances[other] if 0 <= other < len(blocks) else -1
        k = 1 + len(steps)
        node = blocks[b, OWNER]
        for _ in range(LEVELS):
            if node >= 0:
                row[k] = main[node] / max(chars[node], 1)
                row[k + 1] = main[node] / whole
                node = nodes[node, PARENT]
            else:
                row[k] = row[k + 1] = -1
            k += 2
        row[k] = main[0] / max(chars[0], 1)
        row[k + 1] = before / whole
        row[k + 2] = np.log2(whole + 1)
        row[k + 3] = best
        before += max(blocks[b, B_CHARS], 1) * chances[b]
