"""Learning BPE's merges from counted words as `tokenizers` learns them (`learn.py`), in a kernel (`kernel.py`) over words as blocks
of tokens (`blocks.py`), with a table of pairs (`pairs.py`) and a queue of them (`queue.py`)."""
