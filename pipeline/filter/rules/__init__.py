"""Rules as data: sets of `configs/rules/` (`sets.py`), judged on columns of signals (`judge.py`)."""
