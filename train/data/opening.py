"""The shard set that a config names, opened; text shards become tokens first."""

from __future__ import annotations

from collections.abc import Callable

from corpusmill.common.errors import UserError
from corpusmill.common.storage import Folder
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.data.shards import Shards, open_shards


def open_run_data(config: TrainConfig, say: Callable[[str], None] | None = None) -> Shards:
    """What a run reads. Tokens made of texts are kept in `data.token_cache`, or with the run."""
    data = config.data
    return open_tokens(
        data.shards, data.token_cache or str(Folder(config.output_url) / "tokens"), data.tokenizer, say
    )


def open_tokens(
    url: str, cache: str | None = None, tokenizer: str | None = None, say: Callable[[str], None] | None = None
) -> Shards:
    """The token shard set at `url`; if texts lie there, the one made of them, in a folder below `cache`.

    Raises `UserError` if there is nothing to read, or texts and no cache; what `token_set` raises.
    """
    from corpusmill.train.data.texts.inputs import is_text
    from corpusmill.train.data.texts.token_set import token_set

    if not is_text(url):
        return open_shards(url)
    if cache is None:
        raise UserError(f"data.token_cache: {url} holds texts; name a folder in which their tokens are kept")
    return open_shards(token_set(url, cache, tokenizer=tokenizer, say=say).url)
