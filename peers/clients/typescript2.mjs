// The official TypeScript SDK, version 2, as a legacy client: `node typescript2.mjs URL`, or in another
// mode: `node typescript2.mjs URL auto`.
import process from 'node:process';

import { require, run } from './lines.mjs';

const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

async function open() {
    const to = new StreamableHTTPClientTransport(new URL(process.argv[2]));
    const client = new Client(
        { name: 'typescript-2', version: '1.0.0' },
        { versionNegotiation: { mode: process.argv[3] ?? 'legacy' } }
    );
    await client.connect(to);
    return { client, to, version: to.protocolVersion };
}

await run({
    open,
    call: ({ client }, params) => client.callTool(params),
    close: async ({ client, to }) => {
        await to.terminateSession();
        await client.close();
    }
});
