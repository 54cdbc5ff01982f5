"""What `corpusmill serve` reads: the bodies of OpenAI's completions and chat completions, and our own parameters of sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from corpusmill.common.config import validate
from corpusmill.common.errors import UserError, nearest
from corpusmill.common.yaml import printable
from corpusmill.schemas.generation import Sampling

# Parameters of OpenAI's that change nothing in the text, and are read over.
HARMLESS = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
# Those that would change it, with what is to be done instead.
REFUSED = {
    "tools": "calls of tools are not supported; leave it out",
    "tool_choice": "calls of tools are not supported; leave it out",
    "parallel_tool_calls": "calls of tools are not supported; leave it out",
    "functions": "calls of functions are not supported; leave it out",
    "function_call": "calls of functions are not supported; leave it out",
    "suffix": "the model continues texts and does not fill gaps; leave it out",
    "best_of": "is not supported; ask for n texts with logprobs and choose",
    "modalities": "only text is supported; leave it out",
    "audio": "only text is supported; leave it out",
    "prediction": "is not supported; start the server with --draft prompt",
    "reasoning_effort": "is not supported; leave it out",
    "verbosity": "is not supported; leave it out",
    "web_search_options": "is not supported; leave it out",
}
CHOICES = 128  # of one request
LIKELIEST = 20
SHOWN = 100  # characters of what was sent, in a refusal

Role = Literal["system", "user", "assistant"]
Body = TypeVar("Body", bound="Options")


def _prompts(value: Any) -> list[str | list[int]]:
    """One text, several, one list of token ids, or several."""
    found = [value] if isinstance(value, str) or _ids(value) else value
    if (
        not isinstance(found, list)
        or not found
        or not all(isinstance(one, str) or _ids(one) for one in found)
    ):
        raise ValueError("must be a text, a list of texts, a list of token ids, or a list of such lists")
    return list(found)


def _ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(one) is int and one >= 0 for one in value)


def _messages(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise ValueError("must be a list of at least one message")
    return [_message(one, number) for number, one in enumerate(value)]


def _message(value: Any, number: int) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{number} is not an object with role and content")
    role = "system" if value.get("role") == "developer" else value.get("role")
    if role not in ("system", "user", "assistant"):
        raise ValueError(f"{number} has not the role system, user or assistant")
    surplus = [key for key in value if key not in ("role", "content", "name") and value[key] is not None]
    if surplus:
        raise ValueError(f"{number} has '{printable(surplus[0][:SHOWN])}', which is not supported")
    content = value.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content) if all(map(_text_part, content)) else None
    if not isinstance(content, str):
        raise ValueError(f"{number} has a content that is not text")
    return {"role": role, "content": content}


def _text_part(value: Any) -> bool:
    wanted = isinstance(value, dict) and value.get("type") == "text" and set(value) == {"type", "text"}
    return wanted and isinstance(value["text"], str)


def _stop(value: Any) -> list[str]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise ValueError("must be a text or a list of texts, none of them empty")
    if len(found) > 8:
        raise ValueError(f"has {len(found)} texts, and 8 are allowed")
    return list(found)


def _biases(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise ValueError("must be an object of token ids and numbers")
    found = {}
    for key, bias in value.items():
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10):
            raise ValueError("has a key that is not a token id")
        if type(bias) not in (int, float) or not -100 <= bias <= 100:
            raise ValueError(f"{key}: must be a number from -100 to 100")
        found[int(key)] = float(bias)
    return found


def _format(value: Any) -> dict[str, Any] | None:
    """The JSON Schema that a text must follow, or None for any text."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    schema = value.get("json_schema") if kind == "json_schema" else None
    if isinstance(schema, dict) and isinstance(schema.get("schema"), dict):
        return dict(schema["schema"])
    raise ValueError(
        'must be {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"schema": {...}}}'
    )


Finite = Annotated[float, Field(allow_inf_nan=False)]


class StreamOptions(BaseModel):
    """Of a streamed answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    include_usage: bool = Field(default=False, description="a last chunk with the numbers of tokens")
    include_obfuscation: bool = Field(default=False, description="read over")


class Options(BaseModel):
    """What both kinds of requests have. The defaults are OpenAI's."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str | None = Field(default=None, description="the served model's name, or left out")
    n: int = Field(default=1, ge=1, le=CHOICES, description="texts for each prompt")
    max_tokens: int | None = Field(default=None, ge=0)
    temperature: Finite = Field(default=1.0, ge=0, le=2)
    top_p: Finite = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0, description="ours")
    min_p: Finite = Field(default=0.0, ge=0, lt=1, description="ours")
    typical_p: Finite = Field(default=1.0, gt=0, le=1, description="ours")
    repetition_penalty: Finite = Field(default=1.0, ge=0.01, le=100, description="ours")
    presence_penalty: Finite = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: Finite = Field(default=0.0, ge=-2, le=2)
    logit_bias: Annotated[dict[int, float], PlainValidator(_biases)] = {}
    stop: Annotated[list[str], BeforeValidator(_stop)] = []
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: Annotated[dict[str, Any] | None, PlainValidator(_format)] = None
    guided_regex: str | None = Field(default=None, description="ours: the text matches it")
    guided_json: dict[str, Any] | None = Field(default=None, description="ours: the text follows this schema")

    @model_validator(mode="after")
    def _one_constraint(self) -> Self:
        given = (self.response_format, self.guided_regex, self.guided_json)
        if sum(one is not None for one in given) > 1:
            raise ValueError("response_format, guided_regex and guided_json: give one of them")
        return self

    @property
    def json_schema(self) -> dict[str, Any] | None:
        return self.guided_json if self.response_format is None else self.response_format

    def sampling(self, max_tokens: int, seed: int, stop: tuple[str, ...] = ()) -> Sampling:
        """Of one text; `stop`: texts that end it beside its own."""
        return Sampling(
            max_tokens=max_tokens, seed=seed % 2**63, stop=[*self.stop, *stop],
            **self.model_dump(include={
                "temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
                "frequency_penalty", "logit_bias",
            }),
        )  # fmt: skip


class Completion(Options):
    """The body of `POST /v1/completions`."""

    prompt: Annotated[list[str | list[int]], PlainValidator(_prompts)]
    echo: bool = Field(default=False, description="the prompt before the text")
    logprobs: int | None = Field(default=None, ge=0, le=LIKELIEST)


class ChatCompletion(Options):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, str]], PlainValidator(_messages)]
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=LIKELIEST)


def read_body(kind: type[Body], data: Any) -> Body:
    """A parsed JSON body as `kind`. Raises `UserError`: `parameter: what is wrong`. A parameter that is null is left out."""
    if not isinstance(data, Mapping):
        raise UserError("body: must be a JSON object")
    given = {key: value for key, value in data.items() if value is not None}
    for key in data:
        if key in REFUSED and key in given:
            raise UserError(f"{key}: {REFUSED[key]}")
        if key not in kind.model_fields and key not in HARMLESS and key not in REFUSED:
            name = key[:SHOWN]
            raise UserError(f"{printable(name)}: unknown parameter{nearest(name, kind.model_fields)}")
    wanted = {key: value for key, value in given.items() if key in kind.model_fields}
    try:
        return validate(kind, wanted, "body")
    except UserError as error:
        raise UserError(str(error).splitlines()[0].removeprefix("body: ")) from None
