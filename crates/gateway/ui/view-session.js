// One session: why requests are in it, its calls, links, losses and connections.
import { end, feed, get, repeat } from "./api.js";
import { confirmed } from "./confirm-dialog.js";
import { h, show } from "./dom.js";
import { bytes, clock, count, duration, micros, sessionName, until } from "./format.js";

const CARRIERS = {
  argument: "the argument session_id", meta: "a member of _meta", header: "the header Stayput-Session", path: "the path of the URL",
  custom: "a place of identify.custom", hint: "a hint of the host", connection: "the connection it came on", cookie: "the cookie",
  minted: "the policy mint: a new session", owner: "the policy owner: one session for all", ephemeral: "no name: a session for this call",
};
const CLASSES = [["explicit", "Explicit name"], ["hint", "Host hint"], ["connection", "Connection"], ["policy", "Policy"]];

export function sessionView(main, id) {
  const title = h("h1", null, "Session");
  const body = h("div", { class: "session" });
  main.append(h("p", { class: "back" }, h("a", { href: "#/sessions" }, "← Sessions")), title, body);
  let current = null;

  const load = async (signal) => {
    try {
      current = await get(`sessions/${encodeURIComponent(id)}`, null, signal);
    } catch (error) {
      if (error.status === 404) {
        show(body, h("p", { class: "empty" }, "There is no such session, and none is remembered."));
        return;
      }
      throw error;
    }
    if (title.textContent !== sessionName(current)) title.textContent = sessionName(current);
    document.title = `${sessionName(current)} · Stayput`;
    show(body, head(current), why(current), calls(current), links(current), losses(current), connections(current));
  };
  const polling = repeat(1000, load);
  const heard = ({ detail }) => { if (current?.id === detail.session) polling.now(); };
  feed.addEventListener("event", heard);

  // Rows are drawn again and again; one listener outlives them.
  body.addEventListener("click", async ({ target }) => {
    const action = target.closest("button[data-action]");
    if (!action || !current) return;
    const { action: name, server } = action.dataset;
    const name_of = sessionName(current);
    const yes = name === "end"
      ? await confirmed("End this session?", `All processes of ${name_of} end, and calls in flight fail at once. Its state cannot be brought back.`, "End session")
      : await confirmed(`End the link to ${server}?`, `Its process ends and its state is lost. The next call of ${name_of} to ${server} reports that.`, "End link");
    if (!yes) return;
    try {
      await end(name === "end" ? `sessions/${current.id}` : `sessions/${current.id}/links/${encodeURIComponent(server)}`);
    } catch (error) {
      dispatchEvent(new CustomEvent("stayput-error", { detail: error }));
    }
    polling.now();
  });
  return () => {
    polling.stop();
    feed.removeEventListener("event", heard);
  };
}

function head(it) {
  const facts = [
    ["Owner", it.owner], it.agent && ["Agent", it.agent], ["Named by", it.source], ["Servers", it.servers.join(", ") || "–"],
    ["Age", duration(it.age_seconds)], ["Idle", duration(it.idle_seconds)],
    ["Expires in", it.ended ? "–" : it.expires === null ? "never" : duration(until(it.expires))],
    ["Calls", `${count(it.calls)}, ${count(it.failures)} failed`], ["Generation", String(it.generation)], it.holder && ["Holder", it.holder],
  ].filter(Boolean);
  return h("section", { class: "card" },
    h("div", { class: "row-of" },
      h("span", { class: `state ${it.state}` }, it.ended ? `ended: ${it.ended.reason}` : it.state),
      h("code", { class: "id" }, it.id),
      !it.ended && h("button", { class: "danger", type: "button", "data-action": "end" }, "End session")),
    h("dl", { class: "numbers" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))));
}

function why(it) {
  const rows = it.identified.map((request) => h("tr", null,
    h("td", { class: "time" }, clock(request.at)),
    h("td", null, request.label),
    CLASSES.map(([name]) => {
      const state = request.class === name ? "chosen" : request.absent.includes(name) ? "absent" : "unread";
      const text = state === "chosen" ? CARRIERS[request.carrier] ?? request.carrier : state === "absent" ? "absent" : "not needed";
      return h("td", { class: `why ${state}` }, text);
    }),
    h("td", null, h("code", null, request.connection ?? "–"))));
  return part("Why here?", it.identified.length === 0 ? h("p", { class: "empty" }, "No request has come since this process holds the session.")
    : [h("p", { class: "note" }, advice(it)), table(["Time", "Request", ...CLASSES.map(([, title]) => title), "Connection"], rows, "Why the last requests are in this session")]);
}

// The most frequent question: two chats in one session.
function advice(it) {
  const last = it.identified[0];
  const connections = new Set(it.identified.map((request) => request.connection));
  if (last.class === "connection") {
    return "These requests name no session, and their host gives no hint. So all requests of one connection share this session. Two chats of one client need a name each: the argument session_id, the header Stayput-Session, or a URL that ends with /~NAME.";
  }
  if (last.carrier === "owner") return "These requests name no session, and the policy owner puts all of them into one. Another value of unidentified keeps them apart.";
  if (last.class === "hint") return "The host of the client tells the conversation. Requests with the same hint share this session.";
  if (last.class === "explicit" && connections.size > 1) return `The same name came on ${connections.size} connections: whoever sends it shares this session.`;
  if (last.class === "explicit") return "The requests name this session themselves. Another name leads to another session.";
  return "These requests name no session, and the policy made one for them.";
}

function calls(it) {
  const longest = Math.max(...it.recent_calls.map((call) => call.duration_micros ?? 0), 1);
  const rows = it.recent_calls.map((call) => h("tr", null,
    h("td", { class: "time" }, clock(call.at)),
    h("td", null, h("b", null, call.label), call.arguments !== null && h("code", { class: "arguments" }, call.arguments)),
    h("td", null, call.server),
    h("td", null, h("span", { class: `outcome ${call.outcome}` }, call.outcome.replace("_", " "))),
    h("td", { class: "number" }, call.duration_micros === null ? "…" : micros(call.duration_micros),
      h("meter", { min: "0", max: String(longest), value: String(call.duration_micros ?? longest), "aria-label": "Duration" })),
    h("td", { class: "number" }, bytes(call.sent_bytes)),
    h("td", { class: "number" }, call.outcome === "running" ? "–" : bytes(call.received_bytes))));
  return part("Calls", rows.length === 0 ? h("p", { class: "empty" }, "No call yet.")
    : table(["Time", "Tool", "Server", "Outcome", "Duration", "Sent", "Received"], rows, "Last calls, the latest first", { 4: "number", 5: "number", 6: "number" }));
}

function links(it) {
  return part("Links", it.links.length === 0 ? h("p", { class: "empty" }, "No server is connected. The next call opens a link.") : it.links.map((link) => h("article", { class: "card link", "data-key": link.server },
    h("div", { class: "row-of" },
      h("h3", null, link.server), h("span", { class: `state ${link.state}` }, link.state),
      h("span", { class: "facts" }, [link.generation !== null && `generation ${link.generation}`, link.age_seconds !== null && `for ${duration(link.age_seconds)}`, link.shared_by !== "session" && `shared by ${link.shared_by}`, `${link.in_flight} in flight`, link.memory_bytes !== null && bytes(link.memory_bytes)].filter(Boolean).join(" · ")),
      link.state === "live" && !it.ended && h("button", { type: "button", class: "danger", "data-action": "link", "data-server": link.server }, "End link", h("span", { class: "away" }, ` to ${link.server}`))),
    link.processes?.length > 0 && tree(link),
    link.trouble && h("p", { class: "problem" }, link.trouble.message),
    (link.stderr || link.trouble?.stderr) && h("details", null, h("summary", null, "stderr"), h("pre", { tabindex: "0" }, link.stderr || link.trouble.stderr)))));
}

// Processes below their parents. A process whose parent is not of the link is a root.
function tree(link) {
  const known = new Set(link.processes.map((process) => process.pid));
  const below = (parent) => {
    const children = link.processes.filter((process) => (parent === null ? !known.has(process.parent) : process.parent === parent));
    return children.length > 0 && h("ul", null, children.map((process) => h("li", null,
      h("span", null, h("b", null, process.name), " ", h("small", null, `pid ${process.pid}`)), h("span", { class: "size" }, bytes(process.memory_bytes)), below(process.pid))));
  };
  return h("div", { class: "tree", "aria-label": `Processes of ${link.server}`, role: "group" }, below(null));
}

function losses(it) {
  const rows = it.losses.map((loss) => h("tr", null,
    h("td", { class: "time" }, clock(loss.at)), h("td", null, loss.server ?? "–"), h("td", null, h("span", { class: "outcome lost" }, loss.reason ?? "–")),
    h("td", { class: "number" }, String(loss.generation ?? "–")), h("td", null, loss.detail ? h("code", { class: "arguments" }, loss.detail) : "–")));
  const last = it.last_error && h("p", { class: "note" }, `Last error, ${clock(it.last_error.at)}: `, it.last_error.message);
  return part("Losses", rows.length === 0 ? h("p", { class: "empty" }, "No state was lost.") : table(["Time", "Server", "Reason", "Generation", "Last words"], rows, "Losses of state"), last);
}

function connections(it) {
  const rows = it.connections.map((client) => h("tr", null,
    h("td", null, h("b", null, client.client ?? "unknown"), " ", client.version ?? ""), h("td", null, h("code", null, client.number)),
    h("td", null, client.transport), h("td", null, client.protocol), h("td", null, client.by_default ? "by default" : "by name"), h("td", { class: "number" }, String(client.in_flight))));
  return part("Connections", rows.length === 0 ? h("p", { class: "empty" }, "No connection is known. Clients of the modern era have none.") : table(["Client", "Connection", "Transport", "Protocol", "Uses it", "In flight"], rows, "Connections of clients"));
}

function part(title, ...content) {
  return h("section", { class: "part", "aria-label": title }, h("h2", null, title), ...content);
}

function table(titles, rows, label, classes = {}) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", null, h("thead", null, h("tr", null, titles.map((title, at) => h("th", { scope: "col", class: classes[at] }, title)))), h("tbody", null, rows)));
}
