// All live sessions: filter, sort, scroll.
import { get, repeat } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, duration, sessionName, short, until } from "./format.js";
import "./virtual-table.js";

const memory = (session) => {
  const known = session.links.map((link) => link.memory_bytes).filter((it) => it !== null);
  return known.length === 0 ? null : known.reduce((sum, it) => sum + it, 0);
};

const COLUMNS = [
  { title: "Session", sort: "name", class: "name", cell: (it) => h("a", { href: `#/sessions/${it.id}`, title: it.id }, h("b", null, sessionName(it)), " ", h("small", null, it.key === null ? short(it.id) : it.source)) },
  { title: "Owner", sort: "owner", class: "wide", cell: (it) => it.owner },
  { title: "Servers", sort: "servers", class: "wide", cell: (it) => it.servers.join(", ") || "–" },
  { title: "State", sort: "state", class: "word", cell: (it) => h("span", { class: `state ${it.state}` }, it.state) },
  { title: "Age", sort: "created", class: "number wide", cell: (it) => duration(it.age_seconds) },
  { title: "Idle", sort: "idle", class: "number", cell: (it) => duration(it.idle_seconds) },
  { title: "Expires in", sort: "expires", class: "number wide", cell: (it) => (it.expires === null ? "never" : duration(until(it.expires))) },
  { title: "Calls", sort: "calls", class: "number wide", cell: (it) => count(it.calls) },
  { title: "Gen.", sort: "generation", class: "number wide", cell: (it) => String(it.generation) },
  { title: "Memory", sort: "memory", class: "number", cell: (it) => bytes(memory(it)) },
];

// Only where several gateways share a store.
const HOLDER = { title: "Holder", class: "wide", cell: (it) => it.holder ?? "–" };

const STATES = ["busy", "connected", "idle", "away"];

export function sessionsView(main, query) {
  const wanted = { filter: query.get("filter") ?? "", state: query.get("state") ?? "", server: query.get("server") ?? "", sort: query.get("sort") ?? "-created" };
  const found = h("output", { for: "filter state", class: "found" });
  const filter = h("input", { id: "filter", type: "search", value: wanted.filter, placeholder: "Owner, name, server, tool, id", autocomplete: "off", spellcheck: "false" });
  const state = h("select", { id: "state" }, h("option", { value: "" }, "All states"), STATES.map((it) => h("option", { value: it, selected: it === wanted.state }, it)));
  const server = wanted.server && h("a", { class: "chip", href: "#/sessions" }, "server: ", wanted.server, h("span", { "aria-hidden": "true" }, " ×"), h("span", { class: "away" }, ", show all servers"));
  const table = document.createElement("virtual-table");
  main.append(h("h1", null, "Sessions"),
    h("div", { class: "tools", role: "search" }, h("label", { for: "filter", class: "away" }, "Filter sessions"), filter, h("label", { for: "state", class: "away" }, "State"), state, server, found),
    table);

  const load = async ({ offset, limit, exact, signal }) => {
    const parameters = { offset, limit, sort: wanted.sort, memory: exact };
    for (const name of ["filter", "state", "server"]) if (wanted[name]) parameters[name] = wanted[name];
    const page = await get("sessions", parameters, signal);
    found.textContent = `${count(page.total)} ${page.total === 1 ? "session" : "sessions"}`;
    return { rows: page.sessions, total: page.total };
  };
  const remember = () => {
    const kept = Object.entries(wanted).filter(([name, value]) => value && !(name === "sort" && value === "-created"));
    const text = new URLSearchParams(kept).toString();
    history.replaceState(null, "", `#/sessions${text ? `?${text}` : ""}`);
  };
  const search = () => {
    remember();
    return table.reset().catch((error) => {
      if (error.name !== "AbortError") dispatchEvent(new CustomEvent("stayput-error", { detail: error }));
    });
  };
  const setup = (cluster) => {
    table.classList.toggle("cluster", cluster);
    table.setup({
      label: "Sessions", columns: cluster ? [...COLUMNS, HOLDER] : COLUMNS, load, sort: wanted.sort,
      onsort: (sort) => { wanted.sort = sort; search(); },
    });
    table.empty.textContent = "No session matches.";
  };
  setup(false);
  get("status").then(({ cluster }) => { if (cluster) { setup(true); search(); } }).catch(() => {});
  let timer = null;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { wanted.filter = filter.value.trim(); search(); }, 150);
  });
  state.addEventListener("change", () => { wanted.state = state.value; search(); });
  const polling = repeat(3000, () => table.refresh());
  return () => {
    clearTimeout(timer);
    polling.stop();
  };
}
