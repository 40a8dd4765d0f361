// MCP server over stdio whose names, answers and output are markup.
import { createInterface } from "node:readline";

const HOSTILE = `<img src=x onerror="globalThis.hacked=1"><b>"'&amp;`;

const results = {
  initialize: { protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo: { name: HOSTILE, version: HOSTILE } },
  "tools/list": { tools: [{ name: HOSTILE, inputSchema: { type: "object" } }] },
  "tools/call": { content: [{ type: "text", text: HOSTILE }] },
  ping: {},
};

console.error(`</pre><img src=x onerror="globalThis.hacked=1">`);
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method } = JSON.parse(line);
  if (id === undefined) continue;
  const answer = results[method] ? { result: results[method] } : { error: { code: -32601, message: HOSTILE } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
}
