"""Lists that the user gives: their files (`list_files.py`), words of lists in texts (`word_lists.py`), and block lists of
domains, URLs and words in URLs (`url_lists.py`, with its kernels in `url_kernels.py`)."""
