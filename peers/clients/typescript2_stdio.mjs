// The official TypeScript SDK, version 2, over standard input and output:
// `node typescript2_stdio.mjs MODE COMMAND ARGS…`, where MODE is `legacy` or `auto`.
import process from 'node:process';

import { require, run } from './lines.mjs';

const { Client } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const [mode, command, ...args] = process.argv.slice(2);

async function open() {
    const to = new StdioClientTransport({ command, args, env: process.env, stderr: 'ignore' });
    const client = new Client({ name: 'typescript-2', version: '1.0.0' }, { versionNegotiation: { mode } });
    await client.connect(to);
    return { client, version: client.getNegotiatedProtocolVersion?.() ?? 'unknown' };
}

await run({
    open,
    call: ({ client }, params) => client.callTool(params),
    close: ({ client }) => client.close()
});
