"""fastText: models found, checked, loaded and asked (`scores.py`); classifiers trained, judged and described.
Their command line is `cli.py`."""
