// What the clients in JavaScript have in common: commands come in, one JSON object a line, and each is
// answered with a line before the next is read.
//
//   {"open": NAME, "headers": {}}                                {"version": "2025-11-25"}
//   {"call": NAME, "tool": TOOL, "arguments": {}, "meta": {}}    {"result": {...}}
//   {"close": NAME}                                              {"closed": NAME}
//
// Headers and `_meta` can be left out; not every client knows them.
//
// What fails is answered with {"error": "..."}. At the end of the input whatever is open is left as it is.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';

// The packages are in the cache, not beside this file.
export const require = createRequire(join(process.env.STAYPUT_TEST_PEERS, 'package.json'));

const clients = new Map();

async function answer(command, { open, call, close }) {
    if (command.open !== undefined) {
        const client = await open(command.headers ?? {});
        clients.set(command.open, client);
        return { version: client.version };
    }
    if (command.call !== undefined) {
        const { tool, arguments: args, meta } = command;
        const params = { name: tool, arguments: args, ...(meta && { _meta: meta }) };
        return { result: await call(clients.get(command.call), params) };
    }
    await close(clients.get(command.close));
    clients.delete(command.close);
    return { closed: command.close };
}

export async function run(verbs) {
    for await (const line of createInterface({ input: process.stdin })) {
        let said;
        try {
            said = await answer(JSON.parse(line), verbs);
        } catch (error) {
            said = { error: String(error?.stack ?? error) };
        }
        process.stdout.write(`${JSON.stringify(said)}\n`);
    }
    process.exit(0);
}
