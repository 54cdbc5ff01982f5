"""Templates of published models render here to the texts that transformers makes of them; and where answers are found by turns, they are
what transformers marks with the same template's marked form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.peers import NotMeasured, packages
from corpusmill.common.errors import UserError
from corpusmill.train.data.conversations.template import ChatTemplate
from tests.train.finetune.test_peft_itself import NEEDED

TEMPLATES = ("trl==1.16.0",)  # which has templates of published models, and marked forms of some
NAMES = ("llama3", "qwen2_5", "qwen3", "gemma", "deepseekv3", "glm4moe", "cohere", "phi3")
EOS = "<|endoftext|>"
USER, BOT = {"role": "user", "content": " What is 2 + 2?\n"}, {"role": "assistant", "content": "It is 4."}
TALKS = [
    [USER, BOT],
    [{"role": "system", "content": "Be brief."}, USER, BOT],
    [
        USER,
        BOT,
        {"role": "user", "content": "And {{ 3 }} + <b>3</b>?"},
        {"role": "assistant", "content": "6 – six."},
    ],
]
SCRIPT = """
import sys, json
sys.path.insert(0, sys.argv[1])
from transformers.utils.chat_template_utils import render_jinja_template
found = []
for source, talk, prompt in json.load(open(sys.argv[2])):
    try:
        text, _ = render_jinja_template([talk], chat_template=source, add_generation_prompt=prompt, bos_token="", eos_token=sys.argv[3])
        found.append(text[0])
    except Exception as error:
        found.append(None)
print(json.dumps(found))
"""


def rendered(peer: str, place: Path, cases: list[Any]) -> list[str | None]:
    """What transformers makes of (template, conversation, whether a prompt is asked for); None where the template refuses."""
    (place / "cases.json").write_text(json.dumps(cases))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, peer, place / "cases.json", EOS], capture_output=True, text=True, check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HOME": str(place)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[str | None] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_published_templates_give_the_texts_of_transformers(tmp_path: Path) -> None:
    try:
        peer, folder = str(packages("peft", NEEDED)), packages("chat-templates", TEMPLATES)
    except NotMeasured as reason:
        pytest.skip(str(reason))
    files = sorted((folder / "trl/chat_templates").glob("*.jinja"))
    assert {*NAMES} <= {file.stem for file in files}
    cases = [(file, talk, prompt) for file in files for talk in TALKS for prompt in (False, True)]
    theirs = rendered(peer, tmp_path, [(file.read_text(), talk, prompt) for file, talk, prompt in cases])
    equal = set()
    for (file, talk, prompt), wanted in zip(cases, theirs, strict=True):
        template = ChatTemplate(file.read_text(), EOS, file.name)
        if wanted is None:
            with pytest.raises(UserError):
                template.render(talk, prompt)
            continue
        assert template.render(talk, prompt) == wanted, file.name
        equal.add(file.stem)
    assert {*NAMES} <= equal and len(equal) > 20
