"""`corpusmill what-if`: the filter of a finished run judged again with other parameters, on its stored signals. `question.py`: what
may differ; `compare.py` judges a partition twice; `answer.py` adds up and prints."""
