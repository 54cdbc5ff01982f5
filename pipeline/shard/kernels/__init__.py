"""Loops over tokens and bytes: documents into another order and blocks (`order.py`), documents as tar members
(`members.py`)."""
