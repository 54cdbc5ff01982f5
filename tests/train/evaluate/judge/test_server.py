"""The page: blind, kept at once, resumed, and for its own page alone; in a real browser."""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from corpusmill.common.errors import UserError
from corpusmill.train.evaluate.judge.pairs import Pairs
from corpusmill.train.evaluate.judge.ratings import Ratings, read
from corpusmill.train.evaluate.judge.server import Server, Session
from tests.browser import listen
from tests.train.evaluate.judge.made import pairs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"


@contextmanager
def serving(file: Path, given: Pairs, seed: int = 0) -> Iterator[Server]:
    ratings = Ratings(file)
    server = Server(Session(given, ratings, seed))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        ratings.close()
        thread.join()


def post(server: Server, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {
        "Content-Type": "application/json",
        "X-Token": server.token,
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    connection.request("POST", path, data, given)
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    return answer.status, found


def test_rating_is_blind_kept_at_once_and_resumed(tmp_path: Path) -> None:
    file, given = tmp_path / "ratings.jsonl", pairs(4)
    with serving(file, given) as server:
        status, shown = post(server, "/next", {"rater": "Ann"})
        assert status == 200 and (shown["done"], shown["total"]) == (0, 4)
        assert "runs/" not in json.dumps(shown) and set(shown) == {
            "done",
            "total",
            "pair",
            "prompt",
            "left",
            "right",
        }
        first = shown["left"]
        _, after = post(
            server, "/rate", {"rater": "Ann", "pair": shown["pair"], "choice": "left", "seconds": 2.5}
        )
        assert after["done"] == 1 and after["pair"] != shown["pair"]
        [row] = read([file])  # while the server runs
        assert row.prompt == shown["prompt"] and row.rater == "Ann" and row.seconds == 2.5
        assert {"a": row.text_a, "b": row.text_b}[row.choice] == first and row.choice == row.left
        post(server, "/rate", {"rater": "Ann", "pair": after["pair"], "choice": "both_bad"})
        assert post(server, "/next", {"rater": "Ben"})[1]["done"] == 0
    with serving(file, given) as server:  # a new start
        _, shown = post(server, "/next", {"rater": "Ann"})
        assert shown["done"] == 2 and shown["prompt"] == "prompt 2"
        _, back = post(server, "/back", {"rater": "Ann", "pair": shown["pair"]})
        assert back["pair"] == after["pair"]
        _, before = post(server, "/back", {"rater": "Ann", "pair": back["pair"]})
        assert before["prompt"] == "prompt 0" and before["left"] == first
        assert post(server, "/back", {"rater": "Ann", "pair": before["pair"]})[1]["pair"] == before["pair"]
        _, again = post(server, "/rate", {"rater": "Ann", "pair": before["pair"], "choice": "tie"})
        assert again["done"] == 2 and again["prompt"] == "prompt 2"
        for _ in range(2):
            _, again = post(server, "/rate", {"rater": "Ann", "pair": again["pair"], "choice": "right"})
        assert again == {"done": 4, "total": 4}
    assert [row.choice for row in read([file])][1:3] == ["both_bad", "tie"]


def test_pairs_of_other_models_with_the_same_texts_are_asked(tmp_path: Path) -> None:
    file, given = tmp_path / "ratings.jsonl", pairs(3)
    with serving(file, given) as server:
        shown = post(server, "/next", {"rater": "Ann"})[1]
        post(server, "/rate", {"rater": "Ann", "pair": shown["pair"], "choice": "left"})
    for other in (given.b._replace(name="runs/third"), given.b._replace(weights="0123")):
        with serving(file, given._replace(b=other)) as server:
            assert post(server, "/next", {"rater": "Ann"})[1]["done"] == 0
    with serving(file, given) as server:
        assert post(server, "/next", {"rater": "Ann"})[1]["done"] == 1


def test_sides_are_drawn_for_each_rater(tmp_path: Path) -> None:
    with serving(tmp_path / "r.jsonl", pairs(200)) as server:
        session = server.session
        sides = {name: [session.side(p.id, name) for p in session.pairs.rows] for name in ("Ann", "Ben")}
        assert sides["Ann"] != sides["Ben"] and all(70 < own.count("a") < 130 for own in sides.values())
        assert Session(session.pairs, session.ratings, 1).side(session.pairs.rows[0].id, "x") in ("a", "b")


def test_other_pages_and_nonsense_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    with serving(file, pairs(2)) as server:
        good = {"rater": "Ann"}
        pair = post(server, "/next", good)[1]["pair"]
        for path, body, headers, status in (
            ("/next", good, {"Host": "evil.example"}, 403),
            ("/next", good, {"Host": f"evil.example:{server.server_port}"}, 403),
            ("/next", good, {"Origin": "http://evil.example"}, 403),
            ("/next", good, {"Origin": "null"}, 403),
            ("/next", good, {"X_Token": ""}, 403),
            ("/next", good, {"X_Token": "x" * 32}, 403),
            ("/next", good, {"Content_Type": "text/plain"}, 415),
            ("/next", b"[]", {}, 400),
            ("/next", b"{" * 5000, {}, 400),
            ("/next", b"[" * 60_000, {}, 400),
            ("/next", b" " * 70_000, {}, 413),
            ("/next", {"rater": ""}, {}, 400),
            ("/next", {"rater": "a\nb"}, {}, 400),
            ("/next", {"rater": "x" * 65}, {}, 400),
            ("/next", {"rater": 3}, {}, 400),
            ("/other", good, {}, 404),
            ("/rate", {**good, "pair": "none", "choice": "left"}, {}, 404),
            ("/rate", {**good, "pair": pair, "choice": "a"}, {}, 400),
            ("/rate", {**good, "pair": [pair], "choice": "left"}, {}, 400),
            ("/rate", {**good, "pair": pair, "choice": "left", "seconds": "x"}, {}, 400),
            ("/rate", {**good, "pair": pair, "choice": "left", "seconds": -1}, {}, 400),
        ):
            found = post(server, path, body, **headers)
            assert (found[0], set(found[1])) == (status, {"error"}), (
                path,
                body if len(body) < 99 else len(body),
                headers,
            )
        assert post(server, "/next", good, Origin=f"http://localhost:{server.server_port}")[0] == 200
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        for path, host, status in (
            ("/", "evil.example", 403),
            ("/../etc/passwd", None, 404),
            ("/", None, 200),
        ):
            connection.request("GET", path, headers={"Host": host} if host else {})
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == status
            if status != 200:
                connection.close()
        assert b"runs/one" not in body and answer.headers["X-Frame-Options"] == "DENY"
        with pytest.raises(UserError, match="--port .*give another one"):
            Server(server.session, server.server_port)
        connection.close()
    assert read([file]) == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [1400, 390])
def test_a_rater_s_keys_in_a_browser(browser: Browser, tmp_path: Path, width: int) -> None:
    from playwright.sync_api import expect

    file = tmp_path / "ratings.jsonl"
    with serving(file, pairs(5, SCRIPT)) as server:
        page = browser.new_page(viewport={"width": width, "height": 900})
        problems: list[str] = []
        requests: list[str] = []
        listen(page, problems, requests)
        page.goto(server.url, wait_until="load")
        page.locator("#rater").fill("Ann")
        page.locator("#rater").press("Enter")
        expect(page.locator("#progress")).to_have_text("0 of 5 rated")
        # Texts of models are text: nothing in them runs or is drawn.
        assert page.locator("#prompt").inner_text() == f"prompt 0{SCRIPT}"
        assert page.title() == "Which text is better?"
        assert page.evaluate("[document.scripts.length, document.images.length]") == [1, 0]
        chosen = []
        for number, key in enumerate(("ArrowLeft", "ArrowRight", "=", "b"), 1):
            chosen.append({side: page.locator(f"#{side}").inner_text() for side in ("left", "right")})
            page.keyboard.press(key)
            expect(page.locator("#progress")).to_have_text(f"{number} of 5 rated")
        page.keyboard.press("u")
        expect(page.locator("#prompt")).to_have_text(re.compile("prompt 3"))
        page.locator("[data-choice=tie]").click()
        expect(page.locator("#prompt")).to_have_text(re.compile("prompt 4"))
        wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1]
        page.reload()
        assert page.locator("#rater").input_value() == "Ann"
        page.locator("form button").click()
        expect(page.locator("#progress")).to_have_text("4 of 5 rated")
        page.locator("[data-choice=right]").click()
        expect(page.locator("#done")).to_be_visible()
        assert problems == [] and page.title() == "Which text is better?"
        assert {url.partition(server.url)[2] for url in requests} <= {"", "next", "rate", "back"}
        page.close()
    rows = read([file])
    assert [row.choice for row in rows][2:5] == ["tie", "both_bad", "tie"] and len(rows) == 6
    for row, texts, side in zip(rows, chosen, ("left", "right"), strict=False):
        assert {"a": row.text_a, "b": row.text_b}[row.choice] == texts[side]
