"""Files that a user names: the error for one that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpusmill.common.errors import UserError
from corpusmill.common.jsonl import read_jsonl


def test_a_folder_in_place_of_a_file_names_the_files_in_it(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "d", "c"):
        (tmp_path / name).write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError) as error:
        list(read_jsonl(tmp_path, option="--data"))
    assert (
        str(error.value)
        == f"--data {tmp_path}: is a folder; name a file in it (a.jsonl.gz, b.jsonl, c and 1 more)"
    )
    for place in (tmp_path / "folder", tmp_path / "nothing"):
        with pytest.raises(UserError, match=r": no such file$"):
            list(read_jsonl(place))
