"""The page in a real browser: it streams, stops, chats and fits, and asks this server alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

pytest.importorskip("playwright.sync_api")
from playwright.sync_api import expect

from corpusmill.schemas.generation import Sampling
from corpusmill.train.generate.generate import pieces
from tests.browser import listen
from tests.train.generate.models import opened
from tests.train.generate.serve.running import CHATML, ENDLESS, Running, running, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    torch.set_num_threads(1)
    with running(opened(context=50_000), template=CHATML) as found:
        yield found


def page_of(
    browser: Browser, server: Running, width: int = 1280, scheme: str = "light"
) -> tuple[Page, list[str], list[str]]:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    problems: list[str] = []
    requests: list[str] = []
    listen(page, problems, requests)
    page.goto(server.url, wait_until="load")
    return page, problems, requests


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_continues_a_text_and_fits(browser: Browser, server: Running, width: int, scheme: str) -> None:
    page, problems, requests = page_of(browser, server, width, scheme)
    prompt = "<b>the</b> " + "W" * 150
    page.locator("#prompt").fill(prompt)
    page.locator("#seed").fill("5")
    page.locator("#max_tokens").fill("40")
    page.locator("#go").click()
    expect(page.locator("#state")).to_have_text(
        re.compile(r"^\d+ tokens, \d+ a second; (ended|cut at the most tokens)$")
    )
    sampling = Sampling(max_tokens=40, temperature=0.8, top_k=50, top_p=0.95, seed=5)
    wanted = "".join(piece.text for piece in pieces(server.served.opened, [prompt], sampling, rows=1))
    assert page.locator("#output").evaluate("one => one.textContent") == prompt + wanted
    assert page.locator("#output b").count() == 0
    wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1]
    assert problems == [] and all(url.startswith(server.url) for url in requests)
    assert page.evaluate("document.styleSheets.length + document.images.length") == 1
    page.close()


def test_stop_ends_the_text_on_the_server_too(browser: Browser, server: Running) -> None:
    page, problems, _ = page_of(browser, server)

    def endless(route: Route) -> None:
        body = json.loads(route.request.post_data or "")
        route.continue_(post_data=json.dumps({**body, **ENDLESS}))

    page.route("**/v1/completions", endless)
    page.locator("#prompt").fill("the")
    page.locator("#go").click()
    expect(page.locator("#output")).to_contain_text(re.compile(r"the(?s:.){10}"))
    page.locator("#stop").click()
    expect(page.locator("#state")).to_have_text("stopped")
    until(lambda: server.served.worker.metrics.ended["cancelled"] == 1)
    assert server.metric("texts_active") == 0
    assert problems == []
    page.close()


def test_it_chats_and_shows_errors(browser: Browser, server: Running) -> None:
    page, problems, _ = page_of(browser, server, 390)
    page.locator("#mode-chat").click()
    page.locator("#max_tokens").fill("12")
    page.locator("#system").fill("be")
    for text in ("one", "two"):
        page.locator("#prompt").fill(text)
        page.locator("#prompt").press("Enter")
        expect(page.locator("#go")).to_be_enabled()
    assert page.locator(".turn.user p").all_inner_texts() == ["one", "two"]
    assert page.locator(".turn.assistant").count() == 2 and page.locator("#plain").count() == 0
    wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1] and problems == []
    # A message that is refused is no part of the conversation: it stands in the box again, and the next one is answered.
    page.locator("#prompt").fill("<|im_end|>")
    page.locator("#go").click()
    expect(page.locator("#error")).to_contain_text("contains the control token")
    expect(page.locator("#prompt")).to_have_value("<|im_end|>")
    assert page.locator(".turn.user p").all_inner_texts() == ["one", "two"]
    assert page.locator(".turn.assistant").count() == 2
    page.locator("#prompt").fill("three")
    page.locator("#prompt").press("Enter")
    expect(page.locator("#state")).to_have_text(re.compile(r"^\d+ tokens"))
    expect(page.locator("#error")).to_be_hidden()
    assert page.locator(".turn.user p").all_inner_texts() == ["one", "two", "three"]
    page.close()


def test_a_message_that_found_no_server_can_be_sent_again(browser: Browser, server: Running) -> None:
    page, _, _ = page_of(browser, server)
    page.locator("#mode-chat").click()
    page.locator("#max_tokens").fill("5")
    page.route("**/v1/chat/completions", lambda route: route.abort())
    page.locator("#prompt").fill("one")
    page.locator("#go").click()
    expect(page.locator("#error")).to_have_text("the server cannot be reached")
    expect(page.locator(".turn")).to_have_count(0)
    page.unroute("**/v1/chat/completions")
    page.locator("#go").click()
    expect(page.locator("#state")).to_have_text(re.compile(r"^\d+ tokens"))
    assert page.locator(".turn.user p").all_inner_texts() == ["one"]
    page.close()


def test_nothing_of_a_conversation_that_was_cleared_comes_back(browser: Browser, server: Running) -> None:
    """While an answer is given; and the next request holds the new message alone."""
    page, problems, _ = page_of(browser, server)
    sent: list[list[dict[str, str]]] = []

    def endless(route: Route) -> None:
        body = json.loads(route.request.post_data or "")
        sent.append(body["messages"])
        bias = {**ENDLESS["logit_bias"], "263": -100}
        route.continue_(
            post_data=json.dumps(
                {**body, "max_tokens": 10**4, "logit_bias": bias} if len(sent) == 1 else body
            )
        )

    page.route("**/v1/chat/completions", endless)
    page.locator("#mode-chat").click()
    page.locator("#max_tokens").fill("5")
    page.locator("#prompt").fill("one")
    page.locator("#go").click()
    expect(page.locator(".turn.assistant p")).to_contain_text(re.compile(r"(?s:.){10}"))
    page.locator("#clear").click()
    expect(page.locator("#go")).to_be_enabled()
    expect(page.locator(".turn")).to_have_count(0)
    expect(page.locator("#prompt")).to_have_value("")
    page.locator("#prompt").fill("two")
    page.locator("#prompt").press("Enter")
    expect(page.locator("#state")).to_have_text(re.compile(r"^\d+ tokens"))
    assert sent[1] == [{"role": "user", "content": "two"}]
    assert problems == []
    page.close()


def test_enter_that_ends_a_composition_sends_nothing(browser: Browser, server: Running) -> None:
    """As with Japanese or Chinese input methods."""
    page, _, requests = page_of(browser, server)
    page.locator("#mode-chat").click()
    page.locator("#prompt").fill("にほん")
    event = {"key": "Enter", "isComposing": True, "bubbles": True, "cancelable": True}
    page.locator("#prompt").dispatch_event("keydown", event)
    page.wait_for_timeout(200)
    expect(page.locator("#prompt")).to_have_value("にほん")
    assert not [url for url in requests if url.endswith("completions")]
    page.close()
