// The official TypeScript SDK, version 2: `node typescript2.mjs URL [MODE]`, as a legacy client unless the mode is
// another one.
import process from 'node:process';

import { require, run } from './lines.mjs';

const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');

const [url, mode = 'legacy'] = process.argv.slice(2);

async function open(headers) {
    const to = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
    const client = new Client({ name: 'typescript-2', version: '1.0.0' }, { versionNegotiation: { mode } });
    await client.connect(to);
    return { client, to, version: client.getNegotiatedProtocolVersion?.() ?? to.protocolVersion };
}

await run({
    open,
    call: ({ client }, params) => client.callTool(params),
    close: async ({ client, to }) => {
        if (mode === 'legacy') {
            await to.terminateSession();
        }
        await client.close();
    }
});
