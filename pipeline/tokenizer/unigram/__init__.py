"""Training Unigram (Kudo 2018) over bytes from counted words (`../words.py`): frequent substrings as first pieces (`seeds.py`), their
probabilities by EM and the least useful ones dropped (`learn.py`), in kernels (`kernels.py`)."""
