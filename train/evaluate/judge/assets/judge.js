"use strict";
// Shows pairs and sends ratings. Texts are put into the page as text, never as HTML.
(() => {
  const one = id => document.getElementById(id), token = document.body.dataset.token;
  const KEY = "corpusmill:rater";
  let rater = "", pair = null, since = 0, busy = false;
  try { rater = localStorage.getItem(KEY) || ""; } catch { /* no storage: the name is asked for each time */ }

  const problem = words => {
    one("problem").textContent = words;
    one("problem").hidden = !words;
  };

  async function ask(path, more) {
    if (busy) return;
    busy = true;
    try {
      const answer = await fetch(path, {
        method: "POST", headers: { "Content-Type": "application/json", "X-Token": token },
        body: JSON.stringify({ rater, ...more }),
      });
      const found = await answer.json();
      if (answer.ok) { problem(""); show(found); } else problem(found.error);
    } catch {
      problem("The server does not answer. Start it again with the same command; nothing that was rated is lost.");
    } finally { busy = false; }
  }

  function show(found) {
    pair = found.pair || null;
    since = performance.now();
    one("name").hidden = true;
    one("pair").hidden = !pair;
    one("done").hidden = Boolean(pair);
    one("progress").textContent = `${found.done} of ${found.total} rated`;
    one("who").textContent = `by ${rater}`;
    one("bar").setAttribute("width", found.total ? 100 * found.done / found.total : 100);
    for (const id of ["prompt", "left", "right"]) one(id).textContent = pair ? found[id] : "";
    document.body.dataset.pair = pair || "";
  }

  const rate = choice => pair && ask("/rate", { pair, choice, seconds: (performance.now() - since) / 1000 });
  const back = () => rater && one("name").hidden && ask("/back", { pair });

  one("name").addEventListener("submit", event => {
    event.preventDefault();
    rater = one("rater").value.trim();
    if (!rater) return;
    try { localStorage.setItem(KEY, rater); } catch { /* as above */ }
    ask("/next", {});
  });
  for (const button of document.querySelectorAll("[data-choice]"))
    button.addEventListener("click", () => { rate(button.dataset.choice); button.blur(); });
  one("back").addEventListener("click", back);
  one("again").addEventListener("click", back);
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.repeat || event.target.id === "rater") return;
    const choice = { ArrowLeft: "left", ArrowRight: "right", "=": "tie", b: "both_bad", B: "both_bad" }[event.key];
    if (choice) { event.preventDefault(); rate(choice); }
    else if (event.key === "u" || event.key === "U") back();
  });
  one("rater").value = rater;
  one("name").hidden = false;
  one("rater").focus();
})();
