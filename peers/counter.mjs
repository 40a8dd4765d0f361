// A counter on the official TypeScript SDK: `node counter.mjs stdio`, or `node counter.mjs http [PORT]`,
// which prints its URL when it listens. Both eras: one count per process over stdio and for all modern
// clients, one per session for legacy clients over HTTP.
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';

// The packages are in the cache, not beside this file.
const require = createRequire(join(process.env.STAYPUT_TEST_PEERS, 'package.json'));
const sdk = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { toNodeHandler } = require('@modelcontextprotocol/node');

function counter(state) {
    const server = new sdk.McpServer({ name: 'counter-typescript', version: '1.0.0' });
    server.registerTool('count', { description: 'Adds one and says the number.' }, async () => {
        state.count += 1;
        return { content: [{ type: 'text', text: String(state.count) }] };
    });
    return server;
}

// Legacy clients get a transport of their own, which lives as long as their session.
const sessions = new Map();

async function legacy(request) {
    const id = request.headers.get('mcp-session-id');
    if (id !== null && sessions.has(id)) return sessions.get(id).handleRequest(request);
    if (id !== null) return new Response('unknown session', { status: 404 });
    const transport = new sdk.WebStandardStreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        onsessioninitialized: id => void sessions.set(id, transport),
        onsessionclosed: id => void sessions.delete(id)
    });
    await counter({ count: 0 }).connect(transport);
    return transport.handleRequest(request);
}

const shared = { count: 0 };
if (process.argv[2] === 'http') {
    const modern = sdk.createMcpHandler(() => counter(shared), { legacy: 'reject' });
    const fetch = async (request, options) =>
        (await sdk.isLegacyRequest(request)) ? legacy(request) : modern.fetch(request, options);
    const server = createServer(toNodeHandler({ fetch }));
    server.listen(Number(process.argv[3] ?? 0), '127.0.0.1', () => {
        process.stdout.write(`http://127.0.0.1:${server.address().port}/mcp\n`);
    });
} else {
    serveStdio(() => counter(shared));
}
