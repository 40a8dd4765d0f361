// Table that renders only the rows in view, and asks for rows before they come into view.
import { h } from "./dom.js";

const ROW = 40;
const MARGIN = 8;
const MAX_RENDERED = 80;
// Rows of one request, and the distance from unknown rows at which the next request begins.
const CHUNK = 400;
const AHEAD = 1000;
const MAX_KNOWN = 4000;
// Time after the last scroll after which rows are loaded again.
const QUIET = 700;

class VirtualTable extends HTMLElement {
  #columns = [];
  #load = null;
  #known = new Map();
  #loading = new Set();
  #total = 0;
  #abort = new AbortController();
  #drawn = "";
  #focused = 0;
  #scrolled = 0;
  #top = 0;

  /**
   * Sets columns `{ title, sort, cell(row), class }`, and `load({ offset, limit, exact, signal })`, which returns
   * `{ rows, total }`. Rows that are in view are asked for exactly; others may lack what is slow to find out.
   */
  setup({ label, columns, load, sort, onsort }) {
    this.#columns = columns;
    this.#load = load;
    this.onsort = onsort;
    this.sort = sort;
    this.rows = h("div", { class: "rows", role: "rowgroup" });
    this.space = h("div", { class: "space", role: "presentation" }, this.rows);
    this.head = h("div", { class: "head", role: "rowgroup" });
    this.scroller = h("div", { class: "scroller", role: "presentation", onscroll: () => this.#scroll() }, this.head, this.space);
    this.table = h("div", { role: "table", class: "grid", "aria-label": label }, this.scroller);
    this.empty = h("p", { class: "empty", hidden: true });
    this.replaceChildren(this.table, this.empty);
    this.#drawHead();
    this.rows.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#draw(true)).observe(this.scroller);
  }

  /** Forgets all rows, and loads those in view. */
  async reset() {
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#loading.clear();
    this.scroller.scrollTop = 0;
    this.#focused = 0;
    await this.#reload(true);
  }

  /** Loads the rows in view again, unless the reader is scrolling: then rows are loaded anyway. */
  async refresh() {
    if (performance.now() - this.#scrolled > QUIET) await this.#reload(false);
  }

  // The rows that are shown stay until the new ones are there.
  async #reload(all) {
    const { signal } = this.#abort;
    const [first, last] = this.#range();
    const limit = Math.min(MAX_RENDERED, Math.max(last - first, 40));
    const { rows, total } = await this.#load({ offset: first, limit, exact: true, signal });
    if (signal.aborted) return;
    // Other rows have moved when some came or went.
    if (all || total !== this.#total) this.#known.clear();
    rows.forEach((row, at) => this.#known.set(first + at, row));
    this.#setTotal(total);
    this.#draw(true);
  }

  #setTotal(total) {
    this.#total = total;
    this.space.style.height = `${total * ROW}px`;
    this.table.setAttribute("aria-rowcount", String(total + 1));
    this.empty.hidden = total > 0;
  }

  #range() {
    const height = this.scroller.clientHeight || 400;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW) - MARGIN);
    const rendered = Math.min(MAX_RENDERED, Math.ceil(height / ROW) + 2 * MARGIN);
    return [first, Math.min(this.#total, first + rendered)];
  }

  #scroll() {
    this.#scrolled = performance.now();
    this.#draw();
  }

  #drawHead() {
    const cells = this.#columns.map((column) => {
      const isSorted = this.sort.replace("-", "") === column.sort;
      const order = isSorted ? (this.sort.startsWith("-") ? "descending" : "ascending") : null;
      const content = column.sort
        ? h("button", { type: "button", onclick: () => this.#sortBy(column.sort) }, column.title,
          h("span", { class: "order", "aria-hidden": "true" }, order === null ? "" : order === "ascending" ? "↑" : "↓"))
        : column.title;
      return h("div", { role: "columnheader", class: column.class, "aria-sort": order }, content);
    });
    this.head.replaceChildren(h("div", { class: "row", role: "row" }, cells));
  }

  #sortBy(sort) {
    this.sort = this.sort === sort ? `-${sort}` : sort;
    this.#drawHead();
    this.head.querySelector("[aria-sort] button")?.focus();
    this.onsort(this.sort);
  }

  #draw(force = false) {
    if (!this.rows) return;
    const [first, last] = this.#range();
    this.#want(first, last);
    const drawn = `${first}-${last}`;
    if (!force && drawn === this.#drawn) return;
    this.#drawn = drawn;
    const had = this.rows.contains(document.activeElement);
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(this.#renderRow(at));
    this.rows.style.transform = `translateY(${first * ROW}px)`;
    this.rows.replaceChildren(...rows);
    if (had) this.rows.querySelector(`[data-at="${this.#focused}"] a`)?.focus({ preventScroll: true });
  }

  // Asks for rows in view that are not known. If all are, asks for those that come next in the direction of the scroll.
  #want(first, last) {
    const isDown = this.scroller.scrollTop >= this.#top;
    this.#top = this.scroller.scrollTop;
    const unknown = new Set();
    for (let at = first; at < last; at += 1) if (!this.#known.has(at)) unknown.add(Math.floor(at / CHUNK));
    if (unknown.size > 0) { unknown.forEach((chunk) => this.#fetch(chunk)); return; }
    const [from, step] = isDown ? [last, CHUNK] : [first - 1, -CHUNK];
    for (let at = from; Math.abs(at - from) <= AHEAD; at += step) {
      const chunk = Math.floor(at / CHUNK);
      const end = isDown ? Math.min(this.#total, (chunk + 1) * CHUNK) - 1 : chunk * CHUNK;
      if (end >= 0 && end < this.#total && !this.#known.has(end) && !this.#loading.has(chunk)) { this.#fetch(chunk); return; }
    }
  }

  #renderRow(at) {
    const row = this.#known.get(at);
    const cells = this.#columns.map((column) => h("div", { role: "cell", class: column.class },
      row ? column.cell(row) : h("span", { class: "waiting" }, "…")));
    return h("div", { class: "row", role: "row", "data-at": at, "aria-rowindex": at + 2, "aria-busy": row ? null : "true" }, cells);
  }

  async #fetch(chunk) {
    if (this.#loading.has(chunk)) return;
    this.#loading.add(chunk);
    const { signal } = this.#abort;
    const offset = chunk * CHUNK;
    try {
      const { rows } = await this.#load({ offset, limit: CHUNK, exact: false, signal });
      if (signal.aborted) return;
      rows.forEach((row, at) => { if (!this.#known.has(offset + at)) this.#known.set(offset + at, row); });
      this.#forget();
      const [first, last] = this.#range();
      if (offset < last && offset + CHUNK > first) this.#draw(true);
    } catch (error) {
      if (error.name !== "AbortError") dispatchEvent(new CustomEvent("stayput-error", { detail: error }));
    } finally {
      if (!signal.aborted) this.#loading.delete(chunk);
    }
  }

  // Rows far from the view make room.
  #forget() {
    if (this.#known.size <= MAX_KNOWN) return;
    const [first] = this.#range();
    for (const at of this.#known.keys()) if (Math.abs(at - first) > MAX_KNOWN / 2) this.#known.delete(at);
  }

  // Arrow keys move between rows, also to those that are not rendered yet.
  #key(event) {
    const row = event.target.closest("[data-at]");
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (!row || step === undefined) return;
    event.preventDefault();
    this.#focused = Math.min(this.#total - 1, Math.max(0, Number(row.dataset.at) + step));
    const top = this.#focused * ROW;
    const [from, height] = [this.scroller.scrollTop, this.scroller.clientHeight - ROW];
    if (top < from) this.scroller.scrollTop = top;
    else if (top + ROW > from + height) this.scroller.scrollTop = top + ROW - height;
    this.#draw(true);
    this.rows.querySelector(`[data-at="${this.#focused}"] a`)?.focus({ preventScroll: true });
  }
}
customElements.define("virtual-table", VirtualTable);
