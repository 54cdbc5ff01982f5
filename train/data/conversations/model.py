"""What a conversation is read with: tokenizer and chat template, those of the model that training starts from unless others are
named."""

from __future__ import annotations

import json
from typing import NamedTuple

from corpusmill.common.errors import UserError, nearest
from corpusmill.common.storage import Folder
from corpusmill.schemas.conversations import TEMPLATE
from corpusmill.train.data.conversations.encode import controls_of
from corpusmill.train.data.conversations.template import CONTROLS, SHIPPED, ChatTemplate
from corpusmill.train.data.texts.encoder import CONFIG, Encoder, load_encoder, read_encoder
from corpusmill.train.run_folder import TOKENIZER, read_run_data

KEY = "data.conversations.template"


class ReadWith(NamedTuple):
    """`data`: the bytes of tokenizer.json; `name`: of the template, for messages."""

    data: bytes
    encoder: Encoder
    template: ChatTemplate
    name: str


def read_with(tokenizer: str | None, template: str | None, start: str | None) -> ReadWith:
    """`tokenizer`: a tokenizer.json; `template`: a shipped one's name, or a file; `start`: the model's folder. Raises `UserError` if
    there is no tokenizer, for a template that is not there, and for one whose control tokens the tokenizer does not have."""
    if tokenizer is not None:
        data, encoder = read_encoder(Folder(tokenizer))
    elif start is not None:
        data, encoder = _of_model(Folder(start))
    else:
        raise UserError(
            "data.tokenizer: conversations need one: name a tokenizer.json, or a model in init_from that has one"
        )
    name, source = _template(template, start)
    eos = str(encoder.tokenizer.id_to_token(encoder.eos_id))
    missing = [token for token in CONTROLS.get(name, ()) if token not in controls_of(encoder)]
    if missing:
        raise UserError(
            f"{KEY}: {name} needs the special tokens {' and '.join(missing)}, which the tokenizer does not have: set it to plain,"
            " or train a tokenizer with them (tokenizer.special_tokens)"
        )
    return ReadWith(data, encoder, ChatTemplate(source, eos, name), name)


def _of_model(folder: Folder) -> tuple[bytes, Encoder]:
    """The tokenizer of a run, or of a model in the Hugging Face layout."""
    file = folder / TOKENIZER
    kept = read_run_data(folder)
    if kept is None:
        return read_encoder(file)
    return file.read(), load_encoder(file.read(), str(file), kept.eos_id)


def _template(wanted: str | None, start: str | None) -> tuple[str, str]:
    """(name or file, source)."""
    if wanted is None:
        found = None if start is None else template_in(Folder(start))
        return (f"that of {start}", found) if found is not None else ("plain", SHIPPED["plain"])
    if wanted in SHIPPED:
        return wanted, SHIPPED[wanted]
    try:
        return wanted, Folder(wanted).read().decode("utf-8")
    except FileNotFoundError:
        raise UserError(
            f"{KEY}: {wanted}: no such file, nor a shipped template{nearest(wanted, SHIPPED)} ({', '.join(SHIPPED)})"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"{KEY}: {wanted}: is not UTF-8") from None


def template_in(folder: Folder) -> str | None:
    """The template beside a tokenizer: chat_template.jinja, or a key of tokenizer_config.json as older models have it; None: no
    template."""
    try:
        return (folder / TEMPLATE).read().decode("utf-8")
    except FileNotFoundError:
        pass
    except UnicodeDecodeError:
        raise UserError(f"{folder / TEMPLATE}: is not UTF-8") from None
    try:
        found = json.loads((folder / CONFIG).read()).get("chat_template")
    except (FileNotFoundError, ValueError, AttributeError):
        return None
    if isinstance(found, list):  # several by name
        named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None
