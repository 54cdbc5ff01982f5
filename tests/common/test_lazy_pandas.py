"""pyarrow takes pandas for not installed until something imports it, and then for what it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import sys
from corpusmill.common.lazy_pandas import put_off_pandas
put_off_pandas()
import pyarrow as pa
assert pa.array([1, None]).null_count == 1 and pa.array(["a"]).type == pa.string()
assert pa.table({"a": [1.5]}).num_rows == 1
"""
NOT_IMPORTED = "assert 'pandas' not in sys.modules\n"
TO_PANDAS = "assert pa.table({'a': [1]}).to_pandas()['a'].tolist() == [1]\n"
AS_EVER = """
import numpy, pandas
assert not [one for one in sys.meta_path if "corpusmill" in type(one).__module__]
assert pa.array(pandas.Series([1.0, numpy.nan])).null_count == 1
assert pa.array(pandas.Categorical(["a", "b", "a"]).codes).to_pylist() == [0, 1, 0]
assert pa.Table.from_pandas(pandas.DataFrame({"a": [1, 2]})).to_pandas()["a"].tolist() == [1, 2]
put_off_pandas()
assert pa.array(pandas.Series([1.0, numpy.nan])).null_count == 1
"""


@pytest.mark.parametrize("between", ["", TO_PANDAS])
def test_pandas_is_imported_when_it_is_used(between: str) -> None:
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", BEGIN + NOT_IMPORTED + between + AS_EVER], check=True)


def test_without_pandas_all_is_as_ever() -> None:
    hide = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
"""
    subprocess.run([sys.executable, "-c", hide + BEGIN + NOT_IMPORTED], check=True)
