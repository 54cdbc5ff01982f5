"""A run's checkpoint as a model of lm-evaluation-harness, without an export:

    import lm_eval
    from corpusmill.train.evaluate.tasks.lm_eval import harness_model

    results = lm_eval.simple_evaluate(model=harness_model("runs/quickstart/train"), tasks=["blimp"])

The harness is no dependency of CorpusMill: it is imported by `harness_model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corpusmill.common.errors import UserError
from corpusmill.schemas.tasks import Generation
from corpusmill.train.evaluate.rows import Query
from corpusmill.train.evaluate.splits import newest_checkpoint
from corpusmill.train.evaluate.tasks.run import Model, open_model
from corpusmill.train.evaluate.tasks.score import sampling
from corpusmill.train.generate.generate import texts
from corpusmill.train.parallel.mesh import join
from corpusmill.train.run_folder import TOKENIZER, open_run

# Of a request to generate: names for the most tokens, the first one that is given counts.
MOST = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


def harness_model(run: str | Path, settings: Sequence[str] = (), rows: int = 16) -> Any:
    """The newest checkpoint of a run (config, folder or URL) as an `lm_eval.api.model.TemplateLM`; `settings`: `key.key=value`.

    Raises `UserError` without a valid checkpoint, and where lm-evaluation-harness is not installed.
    """
    try:
        from lm_eval.api.model import TemplateLM
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
    except ImportError:
        raise UserError("lm-evaluation-harness is not installed: pip install lm-eval") from None
    config, folder = open_run(run, settings)
    model = open_model(config, folder, newest_checkpoint(folder), join(config), rows)

    class Native(TemplateLM):  # type: ignore[misc]
        """Scores token ids with our scorer, generates with our engine."""

        @property
        def eot_token_id(self) -> int:
            return model.encoder.eos_id

        @property
        def max_length(self) -> int:
            return model.longest

        @property
        def max_gen_toks(self) -> int:
            return Generation().max_gen_toks

        @property
        def tokenizer_name(self) -> str:
            return str(folder / TOKENIZER)

        def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
            return model.encoder.ids([string])[string]

        def _loglikelihood_tokens(self, requests: Any, **kwargs: Any) -> list[tuple[float, bool]]:
            return likelihoods(model, [(context, continuation) for _, context, continuation in requests])

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
            found = []
            for request in requests:
                windows = get_rolling_token_windows(
                    token_list=self.tok_encode(request.args[0]), prefix_token=self.prefix_token_id,
                    max_seq_len=self.max_length, context_len=1,
                )  # fmt: skip
                pairs = [make_disjoint_window(window) for window in windows]
                found.append(sum(value for value, _ in likelihoods(model, pairs)))
            return found

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            return generated(model, [request.args for request in requests], rows)

    return Native()


def likelihoods(model: Model, pairs: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
    """The log-probability of each continuation after its context, and whether greedy decoding gives it."""
    if not pairs:
        return []
    return [(answer.sum, answer.greedy) for answer in model.answers([Query(*pair) for pair in pairs])]


def generated(model: Model, requests: Sequence[tuple[str, dict[str, Any]]], rows: int) -> list[str]:
    """Texts that continue the contexts of `generate_until`, each with its own settings."""
    if model.opened is None:
        raise UserError("texts are generated in one process only: start it without torchrun")
    found = [""] * len(requests)
    by_settings: dict[str, list[int]] = {}
    for number, (_, options) in enumerate(requests):
        by_settings.setdefault(repr(sorted(options.items())), []).append(number)
    for numbers in by_settings.values():
        options = requests[numbers[0]][1]
        wanted = settings_of(options)
        most = wanted.max_gen_toks
        if most >= model.longest:
            raise UserError(
                f"max_gen_toks is {most}, and the model has {model.longest} positions: give fewer (gen_kwargs)"
            )
        ids = model.encoder.ids(requests[number][0] for number in numbers)
        prompts = [
            ids[requests[number][0]][-(model.longest - most) :] or [model.encoder.eos_id]
            for number in numbers
        ]
        generated = texts(model.opened, prompts, sampling(wanted, wanted.until or [], most), rows)
        for number, text in zip(numbers, generated, strict=True):
            found[number] = text
    return found


def settings_of(options: dict[str, Any]) -> Generation:
    """`gen_kwargs` of the harness; those that ours has no counterpart of are refused."""
    from corpusmill.common.config import validate

    given = dict(options)
    most = [value for value in (given.pop(name, None) for name in MOST) if value is not None]
    if most:
        given["max_gen_toks"] = int(most[0])
    return validate(Generation, given, "gen_kwargs")
