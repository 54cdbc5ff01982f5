"""Kinds of tokenizers beside each other (`kinds.py`), trained on one sample of documents and measured on others (`draw.py`,
`measure.py`), as `tokenizer compare` shows them (`show.py`)."""
