"""Encoding over Arrow's bytes: classes of characters (`characters.py`), where patterns cut (`cuts.py`),
pre-tokens already encoded (`table.py`), merging (`merge.py`) and the loop over documents (`scan.py`)."""

from pathlib import Path

from corpusmill.pipeline.compiled import forget_stale

_room = Path(__file__).parent
forget_stale([_room], [_room])
