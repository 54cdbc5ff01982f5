(() => {
  "use strict";
  const input = document.getElementById("wanted"), found = document.getElementById("found");
  const ids = [...document.querySelectorAll("a[data-id]")];
  const MOST = 12;

  const element = (name, text) => {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
  };

  // Where an id stands on the page: its section, and the fold in it.
  const place = (link) => {
    const words = (node) => (node ? node.textContent.replace(/\s+/g, " ").trim() : "");
    const fold = link.closest("details");
    const parts = [words(link.closest("section").querySelector("h2")), words(fold && fold.querySelector("summary"))];
    return parts.filter(Boolean).join(": ");
  };

  const show = (link) => {
    for (let fold = link.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    for (const other of document.querySelectorAll(".hit")) other.classList.remove("hit");
    const box = link.closest(".sample, tr") || link;
    box.classList.add("hit");
    box.scrollIntoView({ block: "center" });
  };

  const quoted = (text) => (/^[\w.\/:#@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

  const search = () => {
    const wanted = input.value.trim();
    found.replaceChildren();
    const key = wanted.toLowerCase();
    const hits = key.length < 3 ? [] : ids.filter(
      (link) => link.dataset.id.startsWith(key) || link.parentElement.textContent.toLowerCase().includes(key)
    );
    if (hits.length) {
      const list = element("ul", "");
      for (const link of hits.slice(0, MOST)) {
        const row = element("li", ""), go = element("button", `${link.dataset.id.slice(0, 12)}… in ${place(link)}`);
        go.type = "button";
        go.addEventListener("click", () => show(link));
        row.append(go);
        list.append(row);
      }
      if (hits.length > MOST) list.append(element("li", `and ${hits.length - MOST} more on this page`));
      found.append(list);
    }
    const note = element("p", "");
    note.className = "note";
    const command = element("code", `corpusmill why ${wanted ? quoted(wanted) : "ID"} --run .`);
    command.className = "command";
    const lead = hits.length ? "All of it" : key.length < 3 ? "Any document" : "Not among those on this page. Any document";
    note.append(`${lead}, in the run's folder: `, command);
    found.append(note);
  };

  for (const link of ids) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      input.value = link.dataset.id;
      search();
      document.getElementById("find").scrollIntoView({ block: "center" });
      input.focus({ preventScroll: true });
    });
  }
  input.addEventListener("input", search);
  input.hidden = false;
  if (input.value) search();
})();
