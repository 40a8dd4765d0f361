// A client on the official TypeScript SDK that lets a server ask, report progress and be cancelled:
// `node both_eras.mjs URL`. It prints what came of it as JSON.
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';

import { require } from './lines.mjs';

const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const options = { capabilities: { elicitation: {}, sampling: {} }, versionNegotiation: { mode: 'auto' } };
const client = new Client({ name: 'both-eras', version: '1.0.0' }, options);
client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { name: 'Ann' } }));
client.setRequestHandler('sampling/createMessage', async () => ({
    role: 'assistant',
    content: { type: 'text', text: 'roses are red' },
    model: 'none'
}));
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));

const call = async (name, more) => {
    const result = await client.callTool({ name, arguments: {} }, more);
    return result.content[0].text;
};

const said = { version: client.getNegotiatedProtocolVersion() };
for (const tool of ['count', 'count', 'greet', 'poem']) said[tool] = await call(tool);
const progress = [];
said.steps = await call('steps', { onprogress: it => progress.push(it.progress) });
said.progress = progress;
const stop = new AbortController();
await call('wait', { signal: stop.signal, onprogress: () => stop.abort() }).catch(() => {});
while ((await call('cancelled')) === '0') await sleep(20);
said.cancelled = true;
process.stdout.write(`${JSON.stringify(said)}\n`);
await client.close();
process.exit(0);
