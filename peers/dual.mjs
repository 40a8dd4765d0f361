// A server of both eras on the official TypeScript SDK, which asks its modern clients: `node dual.mjs stdio`, or
// `node dual.mjs http [PORT]`, which prints its URL when it listens.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';

// The packages are in the cache, not beside this file.
const require = createRequire(join(process.env.STAYPUT_TEST_PEERS, 'package.json'));
const sdk = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { toNodeHandler } = require('@modelcontextprotocol/node');

const counts = { count: 0, cancelled: 0 };
const text = words => ({ content: [{ type: 'text', text: String(words) }] });

const schema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };

function greet(context) {
    const answer = sdk.acceptedContent(context.mcpReq.inputResponses, 'name');
    if (answer !== undefined) return text(`Hello ${answer.name}`);
    const name = sdk.inputRequired.elicit({ message: 'What is your name?', requestedSchema: schema });
    return sdk.inputRequired({ inputRequests: { name } });
}

function poem(context) {
    const answer = sdk.inputResponse(context.mcpReq.inputResponses, 'verse');
    if (answer.kind === 'sampling') return text(`Poem: ${answer.result.content.text}`);
    const messages = [{ role: 'user', content: { type: 'text', text: 'Write a verse.' } }];
    const verse = sdk.inputRequired.createMessage({ messages, maxTokens: 10 });
    return sdk.inputRequired({ inputRequests: { verse } });
}

async function report(context, progress, total) {
    const progressToken = context.mcpReq._meta?.progressToken;
    if (progressToken === undefined) return;
    const params = { progressToken, progress, total };
    await context.mcpReq.notify({ method: 'notifications/progress', params });
}

async function steps(context) {
    for (let step = 1; step <= 3; step += 1) await report(context, step, 3);
    return text('done');
}

async function wait(context) {
    const { signal } = context.mcpReq;
    const aborted = new Promise(resolve => signal.addEventListener('abort', resolve, { once: true }));
    await report(context, 1, 2);
    await aborted;
    counts.cancelled += 1;
    return text('cancelled');
}

function dual() {
    const server = new sdk.McpServer({ name: 'dual-typescript', version: '1.0.0' });
    const tool = (name, description, run) =>
        server.registerTool(name, { description }, async context => run(context));
    tool('count', 'Adds one and says the number.', () => text((counts.count += 1)));
    tool('greet', 'Asks for a name and greets.', greet);
    tool('poem', 'Asks the model of the client for a verse.', poem);
    tool('steps', 'Reports its progress.', steps);
    tool('wait', 'Waits until it is cancelled.', wait);
    tool('cancelled', 'Says how many calls were cancelled.', () => text(counts.cancelled));
    return server;
}

if (process.argv[2] === 'http') {
    const server = createServer(toNodeHandler(sdk.createMcpHandler(dual)));
    server.listen(Number(process.argv[3] ?? 0), '127.0.0.1', () => {
        process.stdout.write(`http://127.0.0.1:${server.address().port}/mcp\n`);
    });
} else {
    serveStdio(dual);
}
