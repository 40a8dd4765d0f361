// Live tail of events, with filters and a pause.
import { feed } from "./api.js";
import { h } from "./dom.js";
import { clock, short } from "./format.js";

const KINDS = ["opened", "resumed", "lost", "ended", "refused", "reloaded"];
const SHOWN = 200;

// Events of the whole visit, so that a filter also applies to those that came before. The feed sends the last ones first.
const kept = [];
feed.addEventListener("event", ({ detail }) => {
  if (kept.some((event) => event.number === detail.number && event.at === detail.at)) return;
  kept.push(detail);
  if (kept.length > 2 * SHOWN) kept.splice(0, kept.length - 2 * SHOWN);
});

export function eventsView(main) {
  const wanted = new Set(KINDS);
  let text = "";
  let paused = null;
  const list = h("ol", { class: "events", "aria-label": "Events, the latest first" });
  const empty = h("p", { class: "empty" }, "No event yet. They appear here as they happen.");
  const pause = h("button", { type: "button", "aria-pressed": "false" }, "Pause");
  const waiting = h("output", { class: "found" });
  const filter = h("input", { id: "event-filter", type: "search", placeholder: "Server, session, reason", autocomplete: "off", spellcheck: "false" });
  const boxes = KINDS.map((kind) => h("label", { class: `chip ${kind}` },
    h("input", { type: "checkbox", checked: true, onchange: ({ target }) => { if (target.checked) wanted.add(kind); else wanted.delete(kind); draw(); } }), kind));
  main.append(h("h1", null, "Events"),
    h("div", { class: "tools" }, h("label", { for: "event-filter", class: "away" }, "Filter events"), filter,
      h("fieldset", { class: "chips" }, h("legend", { class: "away" }, "Kinds of events"), boxes), pause, waiting),
    list, empty);

  const has = (event) => wanted.has(event.kind)
    && [event.kind, event.server, event.session, event.reason, event.detail].join("\n").toLowerCase().includes(text);
  const draw = () => {
    const events = (paused ?? kept).filter(has).slice(-SHOWN).reverse();
    list.replaceChildren(...events.map(item));
    empty.hidden = events.length > 0;
  };
  const heard = ({ detail }) => {
    if (paused !== null) {
      const missed = kept.length - paused.length;
      waiting.textContent = missed > 0 ? `${missed} new` : "";
    } else if (has(detail)) {
      list.prepend(item(detail));
      if (list.childElementCount > SHOWN) list.lastElementChild.remove();
      empty.hidden = true;
    }
  };
  pause.addEventListener("click", () => {
    paused = paused === null ? [...kept] : null;
    pause.setAttribute("aria-pressed", String(paused !== null));
    pause.textContent = paused === null ? "Pause" : "Go on";
    waiting.textContent = "";
    draw();
  });
  filter.addEventListener("input", () => { text = filter.value.trim().toLowerCase(); draw(); });
  feed.addEventListener("event", heard);
  draw();
  return () => feed.removeEventListener("event", heard);
}

function item(event) {
  return h("li", { class: event.kind },
    h("time", { datetime: event.at }, clock(event.at)),
    h("span", { class: `kind ${event.kind}` }, event.kind),
    h("span", { class: "what" },
      event.session ? h("a", { href: `#/sessions/${event.session}`, title: event.session }, short(event.session)) : null,
      [event.server && ` on ${event.server}`, event.reason && `: ${event.reason.replaceAll("_", " ")}`, event.generation !== null && ` (generation ${event.generation})`].filter(Boolean).join(""),
      event.detail && h("code", { class: "arguments" }, event.detail)));
}
