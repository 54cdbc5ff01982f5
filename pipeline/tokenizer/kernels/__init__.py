"""Loops over the bytes of a batch and its tokens (`walk.py`): does every text come back, which lines are there, which tokens lie
in lines that repeat and in tags."""

from pathlib import Path

from corpusmill.pipeline.compiled import forget_stale

_room = Path(__file__).parent
forget_stale([_room], [_room])
