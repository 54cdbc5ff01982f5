"""Lists that the user gives: their files (`files.py`), letters and words (`letters.py`), all entries found in one pass
(`automaton.py`), whole keys looked up (`keys.py`), and how often a list's words occur in a text (`words.py`)."""
