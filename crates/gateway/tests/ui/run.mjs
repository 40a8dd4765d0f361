// Runs one case: node run.mjs CASE JSON
import assert from "node:assert/strict";
import { renameSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { launch } from "./browser.mjs";
import * as cases from "./cases.mjs";

const [name, parameters] = process.argv.slice(2);
const given = JSON.parse(parameters);
// Some parameters stand for an action on the gateway.
if (given.revoke) {
  const { file, text } = given.revoke;
  given.revoke = () => {
    writeFileSync(`${file}~`, text);
    renameSync(`${file}~`, file);
  };
}
if (given.counts) {
  const { socket } = given.counts;
  given.counts = () => new Promise((resolve, reject) => {
    const asked = request({ socketPath: socket, path: "/admin/status", headers: { host: "localhost" } }, (answer) => {
      let text = "";
      answer.on("data", (part) => { text += part; });
      answer.on("end", () => {
        const { pages, sampling_tasks: tasks } = JSON.parse(text);
        resolve([pages, tasks]);
      });
    });
    asked.on("error", reject);
    asked.end();
  });
}
const { browser, open, problems } = await launch(given.chromium);
try {
  await cases[name]({ ...given, open });
  assert.deepEqual(problems, []);
  console.log(`${name}: passed`);
} catch (error) {
  console.error(error.stack ?? String(error));
  console.error(problems.join("\n"));
  process.exitCode = 1;
} finally {
  await browser.close();
}
