"""Beside a run: estimates before it, searches over many, models in other tools' formats, and smaller ones made of it."""
