// The official TypeScript SDK, version 1: `node typescript1.mjs URL`, or a command in place of the URL.
import process from 'node:process';

import { require, run } from './lines.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');

const [target, ...args] = process.argv.slice(2);

function transport() {
    if (target.startsWith('http:')) return new StreamableHTTPClientTransport(new URL(target));
    return new StdioClientTransport({ command: target, args, env: process.env, stderr: 'ignore' });
}

// This version knows no other era than the legacy one.
async function open() {
    const to = transport();
    const client = new Client({ name: 'typescript-1', version: '1.0.0' });
    await client.connect(to);
    // A child does not say which version was agreed on.
    return { client, to, version: to.protocolVersion ?? 'unknown' };
}

await run({
    open,
    call: ({ client }, params) => client.callTool(params),
    close: async ({ client, to }) => {
        await to.terminateSession?.();
        await client.close();
    }
});
