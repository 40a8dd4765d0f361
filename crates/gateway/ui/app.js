// The page: login, routes and the header. Each view is a function that fills the main element and returns its end.
import { feed, get, login, logout } from "./api.js";
import { h } from "./dom.js";
import { loginView } from "./view-login.js";
import { overviewView } from "./view-overview.js";
import { sessionsView } from "./view-sessions.js";
import { sessionView } from "./view-session.js";
import { eventsView } from "./view-events.js";

const main = document.getElementById("main");
const nav = document.querySelector("nav");
const live = document.querySelector(".live");
const logoutButton = document.getElementById("logout");

let leave = () => {};
let isIn = false;

const routes = [
  [/^\/$/, "overview", overviewView],
  [/^\/sessions$/, "sessions", sessionsView],
  [/^\/sessions\/([^/]+)$/, "sessions", sessionView],
  [/^\/events$/, "events", eventsView],
];

function show(view, ...parts) {
  leave();
  main.replaceChildren();
  leave = view(main, ...parts) ?? (() => {});
}

function route() {
  if (!isIn) return;
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  const found = routes.map(([form, page, view]) => [path.match(form), page, view]).find(([match]) => match);
  if (!found) { location.hash = "#/"; return; }
  const [match, page, view] = found;
  for (const link of nav.querySelectorAll("a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  show(view, ...match.slice(1).map(decodeURIComponent), new URLSearchParams(query));
  document.title = `${main.querySelector("h1")?.textContent ?? "Stayput"} · Stayput`;
}

function enter() {
  isIn = true;
  nav.hidden = live.hidden = logoutButton.hidden = false;
  feed.start();
  route();
}

function leaveAll(sentence) {
  isIn = false;
  nav.hidden = live.hidden = logoutButton.hidden = true;
  feed.stop();
  show(loginView, async (token) => {
    await login(token);
    enter();
  }, sentence);
  document.title = "Log in · Stayput";
}

feed.addEventListener("state", ({ detail }) => {
  live.dataset.state = detail;
  live.lastElementChild.textContent = detail === "live" ? "live" : "connecting";
});

addEventListener("hashchange", () => { route(); main.focus({ preventScroll: true }); });
addEventListener("stayput-logged-out", ({ detail }) => { if (isIn) leaveAll(`${detail[0].toUpperCase()}${detail.slice(1)}.`); });
addEventListener("stayput-error", ({ detail }) => {
  document.querySelector(".toast")?.remove();
  const toast = h("p", { class: "toast", role: "alert" }, detail.message);
  document.body.append(toast);
  setTimeout(() => toast.remove(), 8000);
});
logoutButton.addEventListener("click", async () => {
  await logout();
  leaveAll(null);
});

async function begin() {
  const token = location.hash.match(/^#token=(.+)$/)?.[1];
  if (token) {
    // The token must not stay in the history of the browser.
    history.replaceState(null, "", "#/");
    try {
      await login(decodeURIComponent(token));
      return enter();
    } catch (error) {
      return leaveAll(error.message);
    }
  }
  try {
    await get("status");
    enter();
  } catch (error) {
    leaveAll(error.status === 401 ? null : error.message);
  }
}
begin();
