"""Keep pyarrow from importing pandas, which it does to find out whether a list that it is given is a pandas object."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def put_off_pandas() -> None:
    """Until something else imports pandas, pyarrow takes it for not installed. Importing it takes a good part of what a small run
    takes in all, in each process. From its import on, and for `to_pandas`, all is as without this."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    notice = _Notice()
    sys.meta_path.insert(0, notice)
    pa.array([0])  # it looks for pandas once
    notice.hides = False


class _Notice(MetaPathFinder):
    """Hides pandas at first; then has pyarrow look again when it is imported."""

    hides = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if self.hides:
            raise ModuleNotFoundError("No module named 'pandas'", name=fullname)
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            import pyarrow.lib

            pyarrow.lib._pandas_api.pd  # noqa: B018 (what it has found out is forgotten)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
