// Browser, page and MCP client for the cases in `cases.mjs`.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import assert from "node:assert/strict";

const peers = createRequire(`${process.env.STAYPUT_TEST_PEERS}/package.json`);
const { chromium } = peers("playwright-core");
const AXE = readFileSync(peers.resolve("axe-core/axe.min.js"), "utf8");

/** Time for everything, even on a busy machine. */
export const LONG = 30_000;

/** Starts Chromium. The page fails the case by any error in its console, and by any request to another host. */
export async function launch(executable) {
  const browser = await chromium.launch({
    executablePath: executable, headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
  const problems = [];
  const open = async (options = {}) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 820 }, reducedMotion: "reduce", ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(LONG);
    page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
    page.on("console", (message) => {
      // A refused login is an answer that the case expects.
      if (message.type() === "error" && !message.text().includes("Failed to load resource")) problems.push(message.text());
    });
    page.on("request", (request) => {
      const { hostname, protocol } = new URL(request.url());
      if (protocol !== "data:" && hostname !== "127.0.0.1") problems.push(`request to ${request.url()}`);
    });
    return page;
  };
  return { browser, open, problems };
}

/** Runs axe-core in the page, and fails with what it finds at level A or AA. */
export async function accessible(page, where) {
  // The script is evaluated by the debugger, to which the policy of the page does not apply.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
  }));
  const found = violations.map((it) => `${it.id}: ${it.help}\n    ${it.nodes.map((node) => `${node.html.slice(0, 200)} ${node.any.map((one) => one.message).join("; ")}`).slice(0, 4).join("\n    ")}`);
  assert.equal(found.length, 0, `${where}\n  ${found.join("\n  ")}`);
}

/** Request of the page to the admin API, with its cookie. */
export function ask(page, path, method = "GET") {
  return page.evaluate(async ([path, method]) => {
    const response = await fetch(`../admin/${path}`, { method, headers: { "stayput-page": localStorage.getItem("stayput-page") } });
    const text = await response.text();
    return { status: response.status, body: text ? JSON.parse(text) : null };
  }, [path, method]);
}

/** Waits until `look` returns something. */
export async function until(what, look) {
  const begun = Date.now();
  while (Date.now() - begun < LONG) {
    const seen = await look();
    if (seen) return seen;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`there is still no ${what}`);
}

/** MCP client of the legacy era. */
export class Client {
  #id = 0;

  constructor(base, server, { token, session, name = "test", version = "1" } = {}) {
    this.url = `${base}/mcp/${server}`;
    this.headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };
    if (token) this.headers.authorization = `Bearer ${token}`;
    if (session) this.headers["stayput-session"] = `key:${session}`;
    this.info = { name, version };
  }

  async post(method, params, withId = true) {
    const id = withId ? (this.#id += 1) : undefined;
    const response = await fetch(this.url, { method: "POST", headers: this.headers, body: JSON.stringify({ jsonrpc: "2.0", id, method, params }) });
    const text = await response.text();
    assert.ok(response.ok, `${method}: ${response.status} ${text}`);
    this.headers["mcp-session-id"] ??= response.headers.get("mcp-session-id");
    if (!withId) return null;
    const data = text.startsWith("{") ? [text] : text.split("\n").filter((line) => line.startsWith("data: {")).map((line) => line.slice(6));
    return data.map((it) => JSON.parse(it)).find((it) => it.id === id);
  }

  async connect() {
    await this.post("initialize", { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: this.info });
    await this.post("notifications/initialized", {}, false);
    return this;
  }

  async call(tool, args = {}) {
    const answer = await this.post("tools/call", { name: tool, arguments: args });
    return answer.error ?? answer.result;
  }
}
