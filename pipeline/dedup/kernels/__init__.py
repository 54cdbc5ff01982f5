"""From Arrow texts to signatures and shingle sets: Numba kernels, the word rule, the presets.

`shingling.py` is the door: what the rest of the stage knows of shingles.
"""

from pathlib import Path

from corpusmill.pipeline.compiled import forget_stale

_room = Path(__file__).parent.parent
forget_stale([_room], [_room])
