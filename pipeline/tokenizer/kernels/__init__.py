"""Loops over the bytes of a batch and its tokens (`walk.py`): does every text come back, which lines are there, which tokens lie
in lines that repeat and in tags."""
