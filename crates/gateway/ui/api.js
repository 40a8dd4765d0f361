// Requests to the admin API. The browser adds the cookie; the header shows that this page sent the request. Browsers send
// cookies to all ports of a host, so the cookie alone is not enough: the storage belongs to this port only.

const STORED = "stayput-page";

/** Returns the secret of this page, which is part of its login. */
function pageSecret() {
  let secret = localStorage.getItem(STORED);
  if (secret === null) {
    const bytes = crypto.getRandomValues(new Uint8Array(24));
    secret = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    localStorage.setItem(STORED, secret);
  }
  return secret;
}

/** Error of the API, with the sentence of the gateway. */
export class ApiError extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

async function send(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { "stayput-page": pageSecret(), ...options.headers }, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The gateway does not answer.");
  }
  if (response.ok) return response;
  let sentence = `The gateway answered with HTTP ${response.status}.`;
  try {
    const body = await response.json();
    sentence = body.error?.message ?? body.error ?? sentence;
  } catch { /* An answer that is no JSON has no sentence. */ }
  if (response.status === 401) dispatchEvent(new CustomEvent("stayput-logged-out", { detail: sentence }));
  throw new ApiError(response.status, sentence);
}

/** Reads a document of the API. */
export async function get(path, query, signal) {
  const text = query ? `?${new URLSearchParams(query)}` : "";
  return (await send(`../admin/${path}${text}`, { signal })).json();
}

/** Ends something. */
export async function end(path) {
  await send(`../admin/${path}`, { method: "DELETE" });
}

/** Exchanges a token for the cookie. */
export async function login(token) {
  await send("login", { method: "POST", headers: { authorization: `Bearer ${token}` } });
}

/** Removes the cookie. */
export async function logout() {
  await send("logout", { method: "POST" });
}

/** Live events and samples of the gateway. It connects again by itself, and goes on after the last event. */
export class Feed extends EventTarget {
  #last = 0;
  #abort = null;
  state = "connecting";

  start() {
    if (this.#abort === null) {
      this.#abort = new AbortController();
      this.#run(this.#abort.signal);
    }
  }

  stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  #set(state) {
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }

  async #run(signal) {
    let pause = 500;
    while (!signal.aborted) {
      try {
        const headers = this.#last > 0 ? { "last-event-id": String(this.#last) } : {};
        const response = await send("../admin/events", { headers, signal });
        this.#set("live");
        pause = 500;
        await this.#read(response.body, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401 || error.status === 403) return this.stop();
      }
      this.#set("connecting");
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 2, 8000);
    }
  }

  async #read(body, signal) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    while (!signal.aborted) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      blocks.forEach((block) => this.#take(block));
    }
  }

  #take(block) {
    const fields = { data: [] };
    for (const line of block.split("\n")) {
      const at = line.indexOf(":");
      if (at < 1) continue;
      const [name, value] = [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
      if (name === "data") fields.data.push(value);
      else fields[name] = value;
    }
    if (fields.data.length === 0) return;
    const detail = JSON.parse(fields.data.join("\n"));
    if (fields.event === "event") {
      // After a restart of the gateway the numbers begin anew.
      this.#last = detail.number;
    }
    this.dispatchEvent(new CustomEvent(fields.event, { detail }));
  }
}

export const feed = new Feed();

/** Runs `work` now and again after each pause, one run at a time, while the tab is visible. Returns a function that stops it. */
export function repeat(pause, work) {
  const abort = new AbortController();
  let timer = null;
  let again = false;
  let running = false;
  const run = async () => {
    if (abort.signal.aborted || document.hidden) return;
    if (running) { again = true; return; }
    running = true;
    clearTimeout(timer);
    try { await work(abort.signal); } catch (error) {
      if (error.name !== "AbortError") dispatchEvent(new CustomEvent("stayput-error", { detail: error }));
    }
    running = false;
    if (abort.signal.aborted) return;
    timer = setTimeout(run, again ? 0 : pause);
    again = false;
  };
  const visible = () => { if (!document.hidden) run(); };
  document.addEventListener("visibilitychange", visible);
  run();
  return {
    now: run,
    stop() {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", visible);
    },
  };
}
