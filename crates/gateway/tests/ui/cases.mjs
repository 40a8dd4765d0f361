// Cases that drive the dashboard of a real gateway. Each gets `open()`, the URLs and tokens that the test made.
import assert from "node:assert/strict";
import { Client, accessible, ask, until } from "./browser.mjs";

const HOSTILE = `<img src=x onerror="globalThis.hacked=1"><b>"'&amp;`;

const isAlive = (pid) => {
  try { process.kill(pid, 0); return true; } catch { return false; }
};

const gone = (pid) => until(`end of process ${pid}`, () => !isAlive(pid));

/** Row of the table whose first cell has this text. */
const row = (page, name) => page.locator(".rows .row", { has: page.locator(".name b", { hasText: new RegExp(`^${name}$`) }) });

const rowCount = async (page) => Number((await page.locator(".found").textContent()).replace(/\D/g, ""));

/** Filter, a call that appears, a child that is killed, a link and a session that are ended. */
export async function session_is_watched_and_ended({ open, page: url, gateway }) {
  const [one, two] = [await new Client(gateway, "test", { session: "chat-one", name: "Desk", version: "4.2" }).connect(), await new Client(gateway, "test", { session: "chat-two" }).connect()];
  await one.call("count");
  await two.call("count");
  const page = await open();
  await page.goto(url);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  assert.equal(new URL(page.url()).hash, "#/", "the token is not in the address any more");
  await page.locator(".server h3", { hasText: "test" }).waitFor();
  await until("sample", async () => (await page.locator(".tile strong").first().textContent()) === "2");

  await page.getByRole("link", { name: "Sessions", exact: true }).click();
  await row(page, "chat-one").waitFor();
  assert.equal(await rowCount(page), 2);
  await page.getByRole("searchbox").fill("chat-two");
  await until("filtered row", async () => (await rowCount(page)) === 1);
  assert.equal(await row(page, "chat-one").count(), 0);
  await page.getByRole("searchbox").fill("ONE chat");
  await row(page, "chat-one").waitFor();
  await page.getByRole("link", { name: "chat-one" }).click();
  await page.getByRole("heading", { name: "chat-one", level: 1 }).waitFor();

  // A call appears by itself.
  const calls = page.getByRole("region", { name: "Calls" });
  assert.equal(await calls.locator("tbody tr").count(), 1);
  await one.call("echo", { word: "s3cr3t-argument" });
  await calls.getByText("echo", { exact: true }).waitFor();
  assert.equal(await calls.locator(".outcome.ok").count(), 2);
  assert.ok(!(await page.content()).includes("s3cr3t-argument"), "arguments are not shown");
  const why = page.getByRole("region", { name: "Why here?" });
  await why.getByText("the header Stayput-Session").first().waitFor();
  assert.match(await why.locator(".note").textContent(), /name this session themselves/);
  const connections = page.getByRole("region", { name: "Connections" });
  assert.match(await connections.locator("tbody tr").textContent(), /Desk 4\.2/);

  // A child that is killed is a loss at once. The next call reports it.
  const { body: [before] } = { body: (await ask(page, "sessions?filter=chat-one")).body.sessions };
  process.kill(before.links[0].pid, "SIGKILL");
  const links = page.getByRole("region", { name: "Links" });
  await links.locator(".state.over").waitFor();
  const losses = page.getByRole("region", { name: "Losses" });
  await losses.locator(".outcome.lost", { hasText: "exited" }).waitFor();
  const lost = await one.call("count");
  assert.ok(lost.isError, JSON.stringify(lost));
  await calls.locator(".outcome.lost").waitFor();

  // One link is ended, after a question.
  await one.call("count");
  await links.locator(".state.live").waitFor();
  const { sessions: [again] } = (await ask(page, "sessions?filter=chat-one")).body;
  assert.match(again.holder, /^[0-9a-f-]{36}$/);
  assert.ok((await page.locator(".session .numbers").first().textContent()).includes(again.holder), "the holder is shown");
  const endLink = links.getByRole("button", { name: "End link" });
  await endLink.click();
  await page.getByRole("button", { name: "Cancel" }).click();
  assert.ok(isAlive(again.links[0].pid), "the answer was no");
  await endLink.click();
  await page.getByRole("dialog").getByRole("button", { name: "End link" }).click();
  await gone(again.links[0].pid);
  await losses.locator(".outcome.lost", { hasText: "restarted" }).waitFor();
  assert.ok((await one.call("count")).isError, "the loss is reported");

  // The whole session is ended, with its process.
  await one.call("count");
  const { sessions: [last] } = (await ask(page, "sessions?filter=chat-one")).body;
  await page.getByRole("button", { name: "End session" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "End session" }).click();
  await page.locator(".state.ended", { hasText: "ended: closed" }).waitFor();
  await gone(last.links[0].pid);

  // The events tell the story. A pause holds the list, and a filter applies to what is there.
  await page.getByRole("link", { name: "Events" }).click();
  await page.locator(".kind.ended").waitFor();
  assert.equal(await page.locator(".kind.opened").count(), 2);
  assert.equal(await page.locator(".kind.lost").count(), 2);
  await page.getByLabel("lost").uncheck();
  assert.equal(await page.locator(".kind.lost").count(), 0);
  await page.getByRole("button", { name: "Pause" }).click();
  await new Client(gateway, "test", { session: "chat-three" }).connect().then((it) => it.call("count"));
  await page.getByText("1 new").waitFor();
  assert.equal(await page.locator(".kind.opened").count(), 2, "paused");
  await page.getByRole("button", { name: "Go on" }).click();
  assert.equal(await page.locator(".kind.opened").count(), 3);
}

/** Two chats of one client in one session: the page says why. Arguments are shown, because the configuration says so. */
export async function chats_in_one_session_are_explained({ open, page: url, gateway }) {
  const client = await new Client(gateway, "test", { name: "Both chats" }).connect();
  await client.call("echo", { word: "first-argument", handle: "sp_0123456789abcdefghjkmnpqrstvwxyz" });
  await client.call("count");
  const page = await open();
  await page.goto(url);
  await page.getByRole("link", { name: "Sessions", exact: true }).click();
  await page.getByRole("link", { name: "unnamed" }).click();
  const why = page.getByRole("region", { name: "Why here?" });
  await why.locator(".chosen", { hasText: "the connection it came on" }).first().waitFor();
  assert.equal(await why.locator("tbody tr").first().locator(".absent").count(), 2, "no explicit name, no hint");
  assert.match(await why.locator(".note").textContent(), /Two chats of one client need a name each/);
  const content = await page.content();
  assert.ok(content.includes("first-argument"), "arguments are shown");
  assert.ok(content.includes("sp_0123…") && !content.includes("sp_0123456789"), "handles are never shown whole");
}

/** Names with markup are text, wherever they come from. */
export async function hostile_names_are_text({ open, page: url, gateway }) {
  const client = await new Client(gateway, "test", { session: "x<script>hacked=1</script>", name: HOSTILE, version: HOSTILE }).connect();
  await client.call(HOSTILE);
  const page = await open();
  await page.goto(url);
  await page.locator(".server .facts", { hasText: HOSTILE }).waitFor();
  await page.locator(".server pre", { hasText: "</pre><img" }).waitFor({ state: "attached" });
  await page.getByRole("link", { name: "Sessions", exact: true }).click();
  await page.getByRole("link", { name: "x<script>" }).click();
  await page.getByRole("region", { name: "Calls" }).getByText('<img src=x onerror="globalThis', { exact: false }).first().waitFor();
  await page.getByRole("region", { name: "Connections" }).getByText(HOSTILE).first().waitFor();
  await page.getByRole("region", { name: "Links" }).locator("pre", { hasText: "</pre><img" }).waitFor({ state: "attached" });
  process.kill((await ask(page, "sessions?filter=script")).body.sessions[0].links[0].pid, "SIGKILL");
  await page.getByRole("link", { name: "Events" }).click();
  await page.locator(".events", { hasText: "</pre><img" }).waitFor();
  const { hacked, images } = await page.evaluate(() => ({ hacked: globalThis.hacked, images: document.querySelectorAll("img, main script").length }));
  assert.deepEqual([hacked, images], [undefined, 0]);
}

/** Without a credential nothing is shown. A link works once, a login ends with its token, and a role is required. */
export async function access_needs_a_credential({ open, page: url, gateway, admin, user, revoke }) {
  // The address that `stayput ui` printed works once.
  const first = await open();
  await first.goto(url);
  await first.getByRole("heading", { name: "Overview" }).waitFor();
  const second = await open();
  await second.goto(url);
  await second.getByText("this address was used already").waitFor();
  assert.equal(await second.locator(".server, nav:visible").count(), 0);
  assert.equal((await ask(second, "servers")).status, 401);

  // The gateway itself: a page without data, until a token with the role has come.
  const page = await open();
  const answer = await page.goto(`${gateway}/ui`);
  const policy = answer.headers()["content-security-policy"];
  assert.ok(policy.includes("frame-ancestors 'none'") && !policy.includes("unsafe"), policy);
  assert.equal(answer.headers()["x-content-type-options"], "nosniff");
  const token = page.getByLabel("Token with the role admin");
  await token.waitFor();
  assert.ok(!(await page.content()).includes("test-server-name"));
  assert.equal((await ask(page, "servers")).status, 401);
  await token.fill("stp_wrong");
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("the token is not known").waitFor();
  await token.fill(user);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("does not have the role `admin`").waitFor();
  assert.equal((await ask(page, "servers")).status, 401);
  await token.fill(admin);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator(".server h3", { hasText: "test-server-name" }).waitFor();
  const [cookie] = await page.context().cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict" && cookie.value !== admin, JSON.stringify(cookie));

  // Without the header of the page, as another site would send it, the cookie is worth nothing.
  const status = await page.evaluate(async () => (await fetch("../admin/sessions/0192f0c0-0000-7000-8000-000000000000", { method: "DELETE" })).status);
  assert.equal(status, 401);
  assert.equal((await ask(page, "sessions/0192f0c0-0000-7000-8000-000000000000", "DELETE")).status, 404);

  // A logout ends the event streams of the login.
  for (const open of [first, page]) {
    await open.evaluate(follow);
    await until("stream", () => open.evaluate(() => globalThis.followed === "open"));
    await open.getByRole("button", { name: "Log out" }).click();
    await until("end of the stream", () => open.evaluate(() => globalThis.followed === "over"));
  }

  // The page survives a reload of the tab. When the token is taken away, it ends, and a stream that is open ends, too.
  await token.fill(admin);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator(".server h3").waitFor();
  await page.reload();
  await page.locator(".server h3").waitFor();
  await page.evaluate(follow);
  await until("stream", () => page.evaluate(() => globalThis.followed === "open"));
  await revoke();
  await token.waitFor();
  assert.equal(await page.locator(".server").count(), 0);
  await until("end of the stream", () => page.evaluate(() => globalThis.followed === "over"));
}

/** Follows the events beside the page. The page stops its own stream at a logout, this one does not. */
function follow() {
  globalThis.followed = "asked";
  const read = async () => {
    const response = await fetch("../admin/events", { headers: { "stayput-page": localStorage.getItem("stayput-page") } });
    const reader = response.body.getReader();
    globalThis.followed = response.ok ? "open" : `HTTP ${response.status}`;
    while (!(await reader.read()).done);
    globalThis.followed = "over";
  };
  read().catch((error) => { globalThis.followed = String(error); });
}

/** At 10,000 sessions few rows are rendered, few requests are made, and scrolling takes as long as at 100. */
export async function many_sessions_stay_quick({ open, few, many }) {
  const tables = [];
  for (const [url, count] of [[few, 100], [many, 10_000]]) {
    const page = await open();
    await page.goto(url);
    await page.getByRole("link", { name: "Sessions", exact: true }).click();
    await until(`list of ${count}`, async () => (await rowCount(page)) === count);
    tables.push({ page, best: Infinity });
  }
  // Other work on the machine only adds time, so the shortest of several turns counts.
  const [small, large] = tables;
  for (let turn = 0; turn < 12 && !(large.best <= 1.5 * small.best); turn += 1) {
    for (const table of tables) {
      await table.page.bringToFront();
      const { rows, requests, empty, time } = await table.page.evaluate(scroll, 100);
      assert.ok(rows <= 80, `${rows} rows are in the document`);
      assert.ok(requests <= 2, `${requests} requests for one screen`);
      assert.equal(empty, 0, "every row has content in the end");
      table.best = Math.min(table.best, time);
    }
  }
  console.log(`100 steps: ${small.best} ms with 100 sessions, ${large.best} ms with 10,000`);
  assert.ok(large.best <= 1.5 * small.best, `${large.best} ms against ${small.best} ms`);
}

/** Scrolls through the whole table. Each step ends when all rows in view have content. */
async function scroll(steps) {
  const scroller = document.querySelector(".scroller");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const waiting = () => document.querySelectorAll(".rows .waiting").length;
  const most = { rows: 0, requests: 0 };
  let requests = 0;
  const observer = new PerformanceObserver((list) => {
    requests += list.getEntries().filter((it) => it.name.includes("/admin/sessions?")).length;
  });
  observer.observe({ type: "resource" });
  const height = scroller.scrollHeight - scroller.clientHeight;
  const begun = performance.now();
  for (let step = 1; step <= steps; step += 1) {
    requests = 0;
    scroller.scrollTop = (height * step) / steps;
    do await frame(); while (waiting() > 0);
    most.rows = Math.max(most.rows, document.querySelectorAll(".rows .row").length);
    most.requests = Math.max(most.requests, requests);
  }
  return { ...most, time: performance.now() - begun, empty: waiting() };
}

/** Every page, light and dark, wide and narrow: no violation of level A or AA. The screenshots are those of the docs. */
export async function pages_are_accessible({ open, page: url, gateway, login, folder }) {
  const clients = [
    ["checkout-flow", "claude-code", "2.1.4"], ["invoice-review", "cursor", "1.9"], ["nightly-report", "langgraph", "0.6"],
  ];
  for (const [session, name, version] of clients) {
    const client = await new Client(gateway, "notes", { session, name, version }).connect();
    await client.call("note_add", { text: `a note of ${session}` });
    await client.call("note_list");
  }
  const browser = await new Client(gateway, "browser", { session: "checkout-flow", name: "claude-code", version: "2.1.4" }).connect();
  const went = await browser.call("browser_navigate", { url: `${gateway}/healthz` });
  assert.ok(!went.isError, JSON.stringify(went));
  await browser.call("browser_snapshot");
  const page = await open({ colorScheme: "light" });
  await page.goto(url);
  await page.locator(".server h3").first().waitFor();
  // Calls while the page is open, until two samples have their durations.
  const busy = await new Client(gateway, "notes", { session: "nightly-report", name: "langgraph", version: "0.6" }).connect();
  await until("chart of durations", async () => {
    for (let call = 0; call < 20; call += 1) await busy.call("note_list");
    return (await page.locator(".tile", { hasText: "Median" }).locator("polyline").count()) > 0;
  });
  const { sessions: [one] } = (await ask(page, "sessions?filter=checkout")).body;
  const pages = [["overview", "#/", ".server"], ["sessions", "#/sessions", ".rows .row .state"], ["session", `#/sessions/${one.id}`, ".tree li"], ["events", "#/events", ".events li"]];
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await until(`${scheme} theme`, async () => (await page.evaluate(() => document.documentElement.dataset.theme)) === scheme);
    for (const [name, hash, sign] of pages) {
      await page.setViewportSize({ width: 1280, height: 820 });
      await page.evaluate((hash) => { location.hash = hash; }, hash);
      await page.locator(sign).first().waitFor();
      await accessible(page, `${name}, ${scheme}`);
      await page.screenshot({ path: `${folder}/${name}-${scheme}.png` });
      await page.setViewportSize({ width: 390, height: 780 });
      await page.locator(sign).first().waitFor();
      await accessible(page, `${name}, ${scheme}, on a phone`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(wide <= 0, `${name} is ${wide} px wider than a phone`);
      await page.screenshot({ path: `${folder}/${name}-${scheme}-phone.png` });
    }
    await page.setViewportSize({ width: 1280, height: 820 });
    await page.evaluate((hash) => { location.hash = hash; }, pages[2][1]);
    await page.getByRole("button", { name: "End session" }).click();
    await page.getByRole("dialog").waitFor();
    await accessible(page, `dialog, ${scheme}`);
    await page.keyboard.press("Escape");
    const out = await open({ colorScheme: scheme });
    await out.goto(login);
    await out.getByLabel("Token with the role admin").waitFor();
    await accessible(out, `login, ${scheme}`);
    await out.context().close();
  }

  // The keyboard reaches everything: skip link, pages, theme, filter, rows.
  await page.evaluate(() => { location.hash = "#/sessions"; });
  await page.locator(".rows .row .state").first().waitFor();
  await page.evaluate(() => document.activeElement.blur());
  await page.locator(".rows .row a").first().focus();
  await page.keyboard.press("ArrowDown");
  assert.equal(await page.evaluate(() => document.activeElement.closest("[data-at]").dataset.at), "1");
  await page.keyboard.press("Enter");
  await page.locator(".session .id").waitFor();
  const theme = page.getByRole("button", { name: "switch to the light theme" });
  await theme.focus();
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
}

/** Samples are taken while a page is open, and by nobody else. */
export async function samples_need_an_open_page({ open, page: url, counts }) {
  assert.deepEqual(await counts(), [0, 0]);
  const page = await open();
  await page.goto(url);
  await page.getByRole("heading", { name: "Overview" }).waitFor();
  await until("sampling", async () => String(await counts()) === "1,1");
  const other = await page.context().newPage();
  await other.goto(`${new URL(url).origin}/ui/`);
  await until("second page", async () => String(await counts()) === "2,1");
  await page.context().close();
  await until("end of sampling", async () => String(await counts()) === "0,0");
}
