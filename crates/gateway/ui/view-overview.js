// Overview: numbers of the gateway over 15 minutes, and its servers.
import { feed, get, repeat } from "./api.js";
import { h, show } from "./dom.js";
import { bytes, count, duration, micros, rate } from "./format.js";
import "./spark-line.js";

const TILES = [
  ["Sessions", (it) => it.sessions, count, "held by this process"],
  ["Calls per second", (it) => it.millicalls_per_second / 1000, rate, "to all servers"],
  ["Median", (it) => it.p50_micros, micros, "duration of a call, p50"],
  ["Slowest 1 %", (it) => it.p99_micros, micros, "duration of a call, p99"],
  ["Losses", (it) => it.losses, count, "of state, in 15 minutes"],
  ["Processes", (it) => it.processes, count, "of servers"],
  ["Memory", (it) => it.memory_bytes, bytes, "of these processes (PSS)"],
];

export function overviewView(main) {
  let interval = 5;
  let samples = [];
  const tiles = TILES.map(([title, , , note]) => {
    const value = h("strong", null, "–");
    const chart = document.createElement("spark-line");
    return { value, chart, element: h("section", { class: "tile", "aria-label": title }, h("h2", null, title), value, chart, h("small", null, note)) };
  });
  const gateway = h("p", { class: "lead" });
  const servers = h("div", { class: "servers" });
  main.append(h("h1", null, "Overview"), gateway, h("div", { class: "tiles" }, tiles.map((tile) => tile.element)),
    h("h2", { class: "part" }, "Servers"), servers);

  const draw = () => {
    const last = samples.at(-1);
    TILES.forEach(([title, read, format], at) => {
      const { value, chart } = tiles[at];
      // Losses are rare: the sum says more than the last five seconds. A quiet moment keeps the last known duration.
      const current = title === "Losses"
        ? samples.reduce((sum, it) => sum + it.losses, 0)
        : samples.findLast((it) => read(it) !== null) ? read(samples.findLast((it) => read(it) !== null)) : null;
      const text = last === undefined || current === null ? "–" : format(current);
      if (value.textContent !== text) value.textContent = text;
      chart.draw(samples.map((it) => [it.at, read(it)]), interval, `${title} over the last 15 minutes, now ${text}`);
    });
  };
  const add = ({ detail }) => {
    const from = Date.now() - 15 * 60 * 1000;
    samples = [...samples.filter((it) => it.at >= from && it.at !== detail.at), detail];
    draw();
  };
  feed.addEventListener("sample", add);
  get("samples").then((answer) => {
    interval = answer.interval_seconds;
    const newer = samples.filter((it) => !answer.samples.some((known) => known.at === it.at));
    samples = [...answer.samples, ...newer];
    draw();
  }).catch(() => {});
  draw();

  const polling = repeat(4000, async (signal) => {
    const [status, list] = await Promise.all([get("status", null, signal), get("servers", null, signal)]);
    show(gateway, h("span", { class: `state ${status.ready ? "ready" : "failed"}` }, status.ready ? "ready" : status.problem),
      ` Stayput ${status.version}, process ${status.pid}, up ${duration(status.uptime_seconds)}`,
      status.url ? `, at ${status.url}` : "", `. ${count(status.connections)} connections, ${count(status.in_flight)} calls in flight.`);
    show(servers, list.servers.length === 0 ? h("p", { class: "empty" }, "No server is configured.") : list.servers.map(serverCard));
  });
  return () => {
    polling.stop();
    feed.removeEventListener("sample", add);
  };
}

function serverCard(server) {
  const { profile, last_error: error } = server;
  const facts = [
    server.transport,
    profile && `${profile.era} era`,
    profile && profile.isolation,
    profile && `${profile.tools} ${profile.tools === 1 ? "tool" : "tools"}`,
    profile?.name && `${profile.name} ${profile.version ?? ""}`.trim(),
  ].filter(Boolean);
  return h("article", { class: "card server", "data-key": server.name },
    h("header", null, h("h3", null, server.name), h("span", { class: `state ${server.state}` }, server.state)),
    h("p", { class: "facts" }, facts.join(" · ") || "not used yet"),
    h("dl", { class: "numbers" },
      pair("Links", count(server.links)), pair("In flight", count(server.in_flight)),
      pair("Processes", count(server.processes)), pair("Memory", bytes(server.memory_bytes))),
    error && h("p", { class: "problem" }, error.message),
    (server.stderr || error?.stderr) && h("details", null, h("summary", null, "stderr"), h("pre", { tabindex: "0" }, server.stderr || error.stderr)),
    h("a", { href: `#/sessions?server=${encodeURIComponent(server.name)}` }, "Sessions", h("span", { class: "away" }, ` of ${server.name}`)));
}

function pair(name, value) {
  return h("div", null, h("dt", null, name), h("dd", null, value));
}
