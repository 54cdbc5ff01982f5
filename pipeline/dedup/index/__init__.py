"""A lasting index: what a deduplication knows of its corpus, so that more can be added and some taken away.

It holds hashes, ids and where records came from; no text.
"""
