"""From Arrow texts to signatures and shingle sets: Numba kernels, the word rule, the presets.

`shingling.py` is the door: what the rest of the stage knows of shingles.
"""

from contextlib import suppress
from pathlib import Path

# Numba keeps compiled code while the file of a function is unchanged, whatever became of the functions that it
# calls in other files. What the stage's folders keep from before the last change in this one is forgotten.
_files = Path(__file__).parent
_changed = max(file.stat().st_mtime for file in _files.glob("*.py"))
with suppress(OSError):
    for _index in _files.parent.glob("**/__pycache__/*.nbi"):
        if _index.stat().st_mtime < _changed:
            _index.unlink(missing_ok=True)
