"""`corpusmill verify`: `run.py` the order of the checks, `record.py` what the record holds the run to, `stage.py` one stage, `files.py`
one file, `accounts.py` counts of stages against each other, `found.py` what was found. Shards: `corpusmill.pipeline.inspect.shards`."""

from corpusmill.pipeline.inspect.verify.found import Verified
from corpusmill.pipeline.inspect.verify.run import SAMPLE, verify

__all__ = ["SAMPLE", "Verified", "verify"]
