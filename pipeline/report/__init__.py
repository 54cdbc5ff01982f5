"""The run's report: figures gathered from what the stages published (`facts`), drawn as one self-contained
HTML page (`page`, `svg`) and told as a data card (`card`)."""
