"""Rules as data: files and sets of rules (`rule_files.py`, `sets.py`), judged on columns of signals (`judge.py`); rules on lines:
which lines a set would cut (`line_matches.py`), what each set cuts as signals and spans (`line_signals.py`)."""
