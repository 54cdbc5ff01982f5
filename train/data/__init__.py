"""The streaming loader: `plan` decides, `order` is a pure function of n, `fetch` reads blocks, `stream` yields tensors.

`from corpusmill.train.data import StreamingTokens` works with any torch loop; torch is imported only then."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "StreamingTokens":
        from corpusmill.train.data.stream import StreamingTokens

        return StreamingTokens
    raise AttributeError(f"module 'corpusmill.train.data' has no attribute '{name}'")
