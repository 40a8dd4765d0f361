// A tour of the reference server, with a client that can be asked everything: `node tour.mjs URL`, or a
// command in place of the URL. Says what it saw, one JSON object a line, and ends.
import process from 'node:process';

import { require } from './lines.mjs';

const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const types = require('@modelcontextprotocol/sdk/types.js');

const capabilities = {
    roots: { listChanged: true },
    sampling: {},
    elicitation: {},
    tasks: { requests: { elicitation: { create: {} } } }
};
const client = new Client({ name: 'tour', version: '1.0.0' }, { capabilities });

// What the server asked, and what came without being asked for. Those who wait for it are told.
const asked = [];
const heard = new Map();
const waiting = [];

function hear(method, params) {
    heard.set(method, params);
    for (const wake of waiting.splice(0)) wake();
}

async function told(method) {
    while (!heard.has(method)) await new Promise(wake => waiting.push(wake));
    return heard.get(method);
}

client.setRequestHandler(types.ListRootsRequestSchema, () => ({
    roots: [{ uri: 'file:///work', name: 'work' }]
}));
client.setRequestHandler(types.CreateMessageRequestSchema, ({ params }) => {
    asked.push(['sampling', params]);
    return { role: 'assistant', model: 'none', content: { type: 'text', text: 'a thought' } };
});
client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => {
    asked.push(['elicitation', params]);
    return { action: 'accept', content: { name: 'Ann', interpretation: 'technical' } };
});
client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ method, params }) => hear(method, params));
client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ method, params }) => hear(method, params));

// The time that something was made at, and the name of a task, are never twice the same.
function lasting(key, value) {
    if (key === 'taskId') return 'TASK';
    if (typeof value !== 'string') return value;
    const text = key === 'blob' ? Buffer.from(value, 'base64').toString() : value;
    const untimed = text.replace(/created at \d+:\d\d:\d\d.*/, 'created at TIME');
    return untimed === text ? value : untimed;
}

function see(what, seen) {
    process.stdout.write(`${JSON.stringify({ what, seen }, lasting)}\n`);
}

// A request that may be refused: what is refused, and how, is to be seen too.
async function attempt(what, ask) {
    see(what, await ask().catch(error => ({ code: error.code, message: error.message })));
}

async function tool(name, args = {}, options = undefined) {
    const label = `${name} ${JSON.stringify(args)}`;
    await attempt(label, () => client.callTool({ name, arguments: args }, undefined, options));
}

async function lists() {
    see('server', client.getServerVersion());
    see('capabilities', client.getServerCapabilities());
    see('instructions', client.getInstructions());
    see('tools', await client.listTools());
    see('prompts', await client.listPrompts());
    see('resources', await client.listResources());
    see('templates', await client.listResourceTemplates());
    see('ping', await client.ping());
}

async function tools() {
    await tool('echo', { message: 'grüß dich \u2028 "quoted" 🦀' });
    await tool('get-sum', { a: 0.1, b: 41.9 });
    await tool('get-tiny-image');
    await tool('get-annotated-message', { messageType: 'error', includeImage: true });
    await tool('get-structured-content', { location: 'Chicago' });
    await tool('get-resource-links', { count: 4 });
    await tool('get-resource-reference', { resourceType: 'Blob', resourceId: 2 });
    const data = 'data:text/plain;base64,aGVsbG8=';
    await tool('gzip-file-as-resource', { name: 'hello.gz', data, outputType: 'resource' });
    await tool('echo', { massage: 'not what it takes' });
    await tool('there is no such tool');
    await tool('get-roots-list');
    const steps = [];
    const onprogress = progress => steps.push(progress);
    await tool('trigger-long-running-operation', { duration: 0.5, steps: 5 }, { onprogress });
    // The SDK can miss the last one when it comes together with the answer.
    see('progress', steps.slice(0, 4));
}

async function questions() {
    await tool('trigger-sampling-request', { prompt: 'hm', maxTokens: 7 });
    await tool('trigger-elicitation-request');
}

async function prompts() {
    const get = (name, args) => attempt(`${name}`, () => client.getPrompt({ name, arguments: args }));
    await get('simple-prompt');
    await get('args-prompt', { city: 'Oslo', state: 'none' });
    await get('resource-prompt', { resourceType: 'Text', resourceId: '3' });
    await get('args-prompt', {});
    await get('there is no such prompt');
    const ref = { type: 'ref/prompt', name: 'completable-prompt' };
    const context = { arguments: { department: 'Engineering' } };
    await attempt('complete', () => client.complete({ ref, argument: { name: 'department', value: 'E' } }));
    await attempt('complete on', () => client.complete({ ref, argument: { name: 'name', value: '' }, context }));
}

async function resources() {
    const read = uri => attempt(uri, () => client.readResource({ uri }));
    await read('demo://resource/static/document/features.md');
    await read('demo://resource/dynamic/text/1');
    await read('demo://resource/dynamic/blob/2');
    await read('demo://resource/there-is-none');
    await attempt('level', () => client.setLoggingLevel('debug'));
    const uri = 'demo://resource/dynamic/text/1';
    await attempt('subscribe', () => client.subscribeResource({ uri }));
    await client.callTool({ name: 'toggle-subscriber-updates', arguments: {} });
    see('updated', await told('notifications/resources/updated'));
    await client.callTool({ name: 'toggle-subscriber-updates', arguments: {} });
    await attempt('unsubscribe', () => client.unsubscribeResource({ uri }));
    await client.callTool({ name: 'toggle-simulated-logging', arguments: {} });
    see('logs', typeof (await told('notifications/message')).level);
    await client.callTool({ name: 'toggle-simulated-logging', arguments: {} });
}

// A call that is answered with a task, which asks something and is asked after until it is done.
async function tasks() {
    const params = { name: 'simulate-research-query', arguments: { topic: 'tea', ambiguous: true } };
    const seen = [];
    for await (const message of client.experimental.tasks.callToolStream(params, types.CallToolResultSchema)) {
        seen.push(message.type === 'result' ? message.result : message.type);
    }
    see('task', [seen[0], seen.at(-1)]);
}

const [target, ...args] = process.argv.slice(2);
const to = target.startsWith('http:')
    ? new StreamableHTTPClientTransport(new URL(target))
    : new StdioClientTransport({ command: target, args, env: process.env, stderr: 'ignore' });
await client.connect(to);
await lists();
await tools();
await questions();
await prompts();
await resources();
await tasks();
see('asked', asked);
await to.terminateSession?.();
await client.close();
process.exit(0);
