"""A conversation in a terminal: commands, Ctrl-C within an answer, Ctrl-D, and whole characters always."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from corpusmill.common.config import load
from corpusmill.common.errors import UserError
from corpusmill.schemas.generation import Sampling
from corpusmill.schemas.training import TrainConfig
from corpusmill.train.generate.chat import Chat
from corpusmill.train.generate.terminal import Conversation, talk
from corpusmill.train.trainer import train
from tests.conftest import IMPORT_PATH, ROOT
from tests.train.generate.models import BYTES, EOS, few_bytes, opened
from tests.train.generate.serve.running import CHATML

SAMPLING = Sampling(max_tokens=15, seed=3, temperature=1.0)


def conversation(context: int = 256, template: str | None = CHATML) -> Conversation:
    made = opened(context)
    return Conversation(made, Chat(made, template), SAMPLING)


def test_answers_depend_on_the_seed_and_what_was_said() -> None:
    one, other = conversation(), conversation()
    texts = ["".join(one.answer(text)) for text in ("a", "a")]
    assert ["".join(other.answer(text)) for text in ("a", "a")] == texts and texts[0] != texts[1]
    assert [message["role"] for message in one.messages] == ["user", "assistant"] * 2
    assert one.messages[1]["content"] == texts[0]
    one.reset()
    assert "".join(one.answer("a")) == texts[0]


def test_a_full_context_goes_on_without_the_oldest_turns() -> None:
    made = conversation(context=100)
    left = []
    for number in range(12):
        "".join(made.answer(f"number {number}"))
        left.append(made.left_out)
    assert left[0] == 0 and left[-1] > 0 and all(n % 2 == 0 for n in left) and left == sorted(left)
    with pytest.raises(UserError, match="the last message takes"):
        "".join(made.answer("x" * 200))
    assert len(made.messages) == 24


def test_lines_and_commands() -> None:
    made, out = conversation(), io.StringIO()
    lines = [
        "/help",
        "a",
        "/seed 9",
        "/seed x",
        "/system be brief",
        "",
        "<|im_end|>",
        "/reset",
        "/quit",
        "never",
    ]
    talk(made, io.StringIO("\n".join(lines)), out)
    shown = out.getvalue()
    assert "/reset forgets" in shown and "(seed 9)" in shown and "(/seed: give a whole number" in shown
    assert "contains the control token" in shown and "never" not in shown
    assert made.system == "be brief" and made.sampling.seed == 9 and made.messages == []
    talk(made, io.StringIO("a"), out)  # the end of the input
    assert len(made.messages) == 2


def test_an_interrupted_answer_stays_and_the_next_one_comes() -> None:
    made = conversation(context=100_000)
    made.sampling = SAMPLING.model_copy(
        update={"max_tokens": 10**6, "logit_bias": {EOS: -100.0, BYTES - 1: -100.0}}
    )
    found = []
    for piece in made.answer("a"):
        found.append(piece)
        if len(found) == 5:
            made.interrupt()
    assert len(found) <= 6 and made.messages[1]["content"] == "".join(found)
    made.sampling = SAMPLING
    assert isinstance("".join(made.answer("b")), str) and len(made.messages) == 4


def test_an_answer_that_nobody_takes_any_more_frees_its_row() -> None:
    made = conversation(context=100_000)
    made.sampling = SAMPLING.model_copy(
        update={"max_tokens": 10**4, "logit_bias": {EOS: -100.0, BYTES - 1: -100.0}}
    )
    answer = made.answer("a")
    first = next(answer)
    answer.close()
    (left,) = made._engine.active
    count = len(left.tokens)
    made.sampling = SAMPLING
    "".join(made.answer("b"))
    assert len(left.tokens) == count and not made._engine.active
    assert made.messages[1]["content"] == first and len(made.messages) == 4


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_an_answer_cannot_steer_the_terminal(kind: type[io.StringIO]) -> None:
    """A file takes it as it is, and so does the conversation."""
    made, out = conversation(), kind()
    made.answer = lambda text: iter(["a\x1b[2J", "\x07b\tü\n", "c\x9b31m\r\x7f"])  # type: ignore[method-assign]
    talk(made, io.StringIO("x\n"), out)
    raw = "a\x1b[2J\x07b\tü\nc\x9b31m\r\x7f\n"
    assert out.getvalue() == ("a[2Jb\tü\nc31m\n" if kind is Terminal else raw)


def test_a_seed_of_any_length_is_answered() -> None:
    made, out = conversation(), io.StringIO()
    talk(made, io.StringIO(f"/seed {'9' * 5000}\n/seed {2**63 - 1}\n/seed {2**63}\n"), out)
    wrong = "(/seed: give a whole number from 0 on)"
    assert out.getvalue().splitlines() == [wrong, f"(seed {2**63 - 1})", wrong]


def test_in_a_terminal(write_config: Callable[..., Path], tmp_path: Path) -> None:
    """A process with a terminal of its own: Ctrl-C ends an endless answer, Ctrl-D the conversation, with exit code 0. Each token is a
    byte, a half of a character."""
    file = write_config(**{"schedule.steps": 1, "schedule.warmup_steps": 0})
    train(load(TrainConfig, file))
    few_bytes().save(str(tmp_path / "run/tokenizer.json"))
    ours, its = pty.openpty()
    options = ["--max-tokens", "1000000", "--context", "100000", "--temperature", "1.5", "--seed", "4"]
    one = subprocess.Popen(
        [sys.executable, "-m", "corpusmill", "chat", str(tmp_path / "run"), *options],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": IMPORT_PATH, "OMP_NUM_THREADS": "1", "TERM": "dumb"},
        stdin=its, stdout=its, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(its)
    seen = bytearray()
    changed = threading.Condition()

    def read() -> None:
        try:
            while part := os.read(ours, 4096):
                with changed:
                    seen.extend(part)
                    changed.notify_all()
        except OSError:  # its end of the terminal is closed
            pass

    threading.Thread(target=read, daemon=True).start()

    def wait(pattern: bytes, after: int = 0) -> int:
        with changed:
            assert changed.wait_for(lambda: re.search(pattern, seen[after:]), 120), bytes(seen[-500:])
            return len(seen)

    place = wait(rb"> ")
    os.write(ours, "ĀāĂ\n".encode())
    wait(rb"(?s)\n.{30}|\n> ", place)
    one.send_signal(signal.SIGINT)
    with changed:  # at a prompt (an answer may have ended by itself) it takes away what was typed
        while not changed.wait_for(lambda: re.search(rb"\(seed 5\)\r?\n(\x1b\[\?2004h)?> $", seen), 5):
            os.write(ours, b"/seed 5\n")
    os.write(ours, b"\x04")
    assert one.wait(120) == 0
    assert any(ord(letter) > 0x80 for letter in bytes(seen[place:]).decode())  # whole characters
    os.close(ours)


def test_ctrl_c_ends_generate_between_two_characters(
    write_config: Callable[..., Path], tmp_path: Path
) -> None:
    """What has come until then is whole, and the exit code is that of an interrupt."""
    file = write_config(**{"schedule.steps": 1, "schedule.warmup_steps": 0})
    train(load(TrainConfig, file))
    few_bytes().save(str(tmp_path / "run/tokenizer.json"))
    options = ["--prompt", "ü", "--max-tokens", "1000000", "--temperature", "1.5", "--seed", "4"]
    for seed in range(5, 9):
        one = subprocess.Popen(
            [sys.executable, "-m", "corpusmill", "generate", str(tmp_path / "run"), *options[:-1], str(seed)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": IMPORT_PATH, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert one.stdout is not None
        seen = os.read(one.stdout.fileno(), 40)
        while len(seen) < 40 and (part := os.read(one.stdout.fileno(), 40)):
            seen += part
        one.send_signal(signal.SIGINT)
        rest, errors = one.communicate(timeout=120)
        if one.returncode == 0:  # the text had ended by itself
            continue
        assert one.returncode == 130 and b"Traceback" not in errors
        assert (seen + rest).decode().startswith("ü")
        return
    pytest.fail("each text ended at once")
