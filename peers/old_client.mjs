// A client of the 2024-11-05 transport on the official TypeScript SDK 1.x, which the reference servers bring
// along: `node old_client.mjs URL`. Counts twice, then prints what it was told as one line of JSON.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';

const require = createRequire(join(process.env.STAYPUT_TEST_PEERS, 'package.json'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');

const client = new Client({ name: 'old', version: '1.0.0' });
await client.connect(new SSEClientTransport(new URL(process.argv[2])));
const { tools } = await client.listTools();
const counted = [];
for (let n = 0; n < 2; n += 1) {
    const { content } = await client.callTool({ name: 'count', arguments: {} });
    counted.push(content[0].text);
}
console.log(JSON.stringify({ tools: tools.length, counted }));
await client.close();
