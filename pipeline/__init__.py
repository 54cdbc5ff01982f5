"""Raw text to shards: one folder per stage, and the runner that schedules, publishes and counts.

Imports `schemas`, never `train`.
"""
