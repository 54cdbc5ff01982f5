"""`ingest`: raw files of any supported format to document partitions, with every record accounted for.

`stage.py` is the stage, `discover.py` finds and hashes files, `readers/` holds one reader a format.
"""
