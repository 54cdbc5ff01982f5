"""Block lists of domains, URLs and words in URLs: `address.py` takes URLs apart, `lists.py` looks a batch of them up."""
