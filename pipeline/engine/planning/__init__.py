"""What a run will cost, stage by stage, before it begins (`forecast.py`, `estimate.py`), and what it did cost (`meter.py`).

Each stage says what it does with a flow of documents (`Stage.forecast`); constants are measured by `python -m bench plan`.
"""
