"""Loops over tokens and bytes: documents into another order and blocks (`order.py`), documents as tar members
(`members.py`)."""

from pathlib import Path

from corpusmill.pipeline.compiled import forget_stale

_room = Path(__file__).parent
forget_stale([_room], [_room])
