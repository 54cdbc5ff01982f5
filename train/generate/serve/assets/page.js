"use strict";
// Asks this server for text, shows it as it comes, and stops by ending the request.
(() => {
  const at = id => document.getElementById(id), show = (one, wanted) => { one.hidden = !wanted; };
  const NUMBERS = ["max_tokens", "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "seed"];
  const WHY = { stop: "ended", length: "cut at the most tokens" };
  let chat = false, running = null, turns = [];

  function settings() {
    const found = { stream: true, stream_options: { include_usage: true } };
    for (const name of NUMBERS) if (at(name).value.trim() !== "") found[name] = Number(at(name).value);
    const stop = at("stop_texts").value.split("\n").filter(line => line !== "");
    if (stop.length) found.stop = stop;
    return found;
  }

  async function* events(response) {
    const reader = response.body.getReader(), decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const parts = rest.split("\n\n");
      rest = parts.pop();
      for (const part of parts) if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
    }
  }

  class Wrong extends Error {
    constructor(error) { super(error.message); this.code = error.code; }
  }

  async function ask(path, body, signal, take) {
    const response = await fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
    });
    if (!response.ok) throw new Wrong((await response.json()).error);
    const began = performance.now();
    let first = null, usage = null, why = null;
    for await (const event of events(response)) {
      if (event.error) throw new Wrong(event.error);
      if (event.usage) usage = event.usage;
      for (const choice of event.choices) {
        const text = choice.text ?? choice.delta.content ?? "";
        if (text && first === null) first = performance.now() - began;
        why = choice.finish_reason ?? why;
        take(text);
      }
    }
    const seconds = (performance.now() - began) / 1000, made = usage ? usage.completion_tokens : 0;
    return `${made} tokens, ${(made / Math.max(seconds, 0.001)).toFixed(0)} a second; ${WHY[why] ?? why}`;
  }

  const state = text => { at("state").textContent = text; };
  function busy(wanted) {
    at("go").disabled = wanted;
    at("stop").disabled = !wanted;
    if (wanted) { state("generating …"); show(at("error"), false); }
  }

  function turn(role, text) {
    const box = document.createElement("div"), head = document.createElement("b"), words = document.createElement("p");
    box.className = `turn ${role}`;
    head.textContent = role === "user" ? "You" : "Model";
    words.textContent = text;
    box.append(head, words);
    at("turns").append(box);
    show(at("turns"), true);
    return words;
  }

  async function continued(signal) {
    const prompt = at("prompt").value, output = at("output"), given = document.createElement("span");
    given.className = "prompt";
    given.textContent = prompt;
    output.replaceChildren(given);
    show(at("result"), true);
    return ask("v1/completions", { ...settings(), prompt }, signal, text => output.append(text));
  }

  async function answered(signal) {
    const text = at("prompt").value, system = at("system").value, own = turns; // "Clear" begins other ones
    const asked = turn("user", text), shown = turn("assistant", "");
    own.push({ role: "user", content: text });
    at("prompt").value = "";
    const answer = { role: "assistant", content: "" };
    const take = text => { answer.content += text; shown.append(text); };
    const head = system ? [{ role: "system", content: system }] : [];
    let left = 0, kept = true;
    try {
      for (;;) {
        try {
          const words = await ask("v1/chat/completions", { ...settings(), messages: [...head, ...own.slice(left)] }, signal, take);
          return left ? `${words}; ${left} earlier messages left out` : words;
        } catch (error) { // a full context: without the oldest turn
          if (error.code !== "context_length_exceeded" || left + 2 >= own.length) throw error;
          left += 2;
        }
      }
    } catch (error) {
      if (!answer.content) { // nothing was answered: the message is no part of the conversation, and can be sent again
        kept = false;
        own.pop();
        for (const words of [asked, shown]) words.parentElement.remove();
        show(at("turns"), chat && turns.length);
        if (own === turns && !at("prompt").value) at("prompt").value = text;
      }
      throw error;
    } finally {
      if (kept) own.push(answer); // what has come of it, too
    }
  }

  async function go(event) {
    event.preventDefault();
    if (running) return;
    running = new AbortController();
    busy(true);
    try {
      state(await (chat ? answered : continued)(running.signal));
    } catch (error) {
      if (error.name === "AbortError") state("stopped");
      else {
        state("");
        at("error").textContent = error instanceof Wrong ? error.message : "the server cannot be reached";
        show(at("error"), true);
      }
    }
    running = null;
    busy(false);
  }

  function mode(wanted) {
    chat = wanted;
    at("mode-text").setAttribute("aria-pressed", String(!chat));
    at("mode-chat").setAttribute("aria-pressed", String(chat));
    at("prompt-label").textContent = chat ? "Your message" : "Text to continue";
    at("go").textContent = chat ? "Send" : "Generate";
    at("prompt").rows = chat ? 3 : 5;
    show(at("turns"), chat && turns.length);
    show(at("result"), !chat && at("output").childNodes.length);
    for (const one of document.querySelectorAll(".chat")) show(one, chat);
    if (at("plain")) show(at("plain"), chat);
    state("");
  }

  at("form").addEventListener("submit", go);
  at("stop").addEventListener("click", () => running && running.abort());
  at("clear").addEventListener("click", () => {
    if (running) running.abort();
    turns = [];
    at("turns").replaceChildren();
    at("output").replaceChildren();
    at("prompt").value = "";
    show(at("error"), false);
    mode(chat);
  });
  at("mode-text").addEventListener("click", () => running || mode(false));
  at("mode-chat").addEventListener("click", () => running || mode(true));
  at("prompt").addEventListener("keydown", event => {
    if (event.isComposing || event.keyCode === 229) return; // Enter chooses a word of an input method
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey || (chat && !event.shiftKey))) go(event);
  });
})();
