"""Beside a run: estimates before it, searches over many, and models in other tools' formats."""
