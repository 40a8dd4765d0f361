// The TypeScript SDK through the gateway: one URL per conversation.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';

const require = createRequire(`${process.argv[4]}/package.json`);
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const gateway = process.argv[3];
const chat = `typescript-${randomUUID()}`;
const texts = [];
for (const text of ['milk', 'bread']) {
  // A new connection for each turn, as an agent makes it.
  const client = new Client({ name: 'agent', version: '1' });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${gateway}/mcp/notes/~${chat}`)));
  await client.callTool({ name: 'note_add', arguments: { text } });
  texts.push((await client.callTool({ name: 'note_list', arguments: {} })).content[0].text);
  await client.close();
}
assert.deepEqual(texts, ['1. milk', '1. milk\n2. bread']);
console.log('typescript: the conversation goes on over connections');
