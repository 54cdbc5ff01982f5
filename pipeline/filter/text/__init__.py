"""The text view of a batch: one pass over its bytes (`scan.py`), repetition inside documents, Unicode classes.
`view.py` is the door."""

from pathlib import Path

from corpusmill.pipeline.compiled import forget_stale

_room = Path(__file__).parent.parent
forget_stale([_room], [_room])
