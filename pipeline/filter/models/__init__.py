"""The shipped fastText models: cards, licences, checksums; `train_shipped` makes the two of ours."""
