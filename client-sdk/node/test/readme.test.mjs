// The snippets of the README, as they are: the lines that a newcomer adds, and what they do.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startService } from "./stage/service.mjs";
import { read, startProgram } from "./stage/shop.mjs";

const root = new URL("..", import.meta.url).pathname;
const readme = readFileSync(join(root, "README.md"), "utf8");

/** Returns the lines of a snippet. */
function snippet(name) {
  return readme.match(new RegExp(`<!-- snippet: ${name} -->\n\`\`\`\\w+\n([^]*?)\n\`\`\``))[1].split("\n");
}

/** Returns the program of a snippet, with and without the lines that a newcomer adds. */
function programs(name) {
  const lines = snippet(name);
  const text = (kept) => kept.map((line) => line.slice(1)).join("\n");
  return { added: lines.filter((line) => line.startsWith("+")).length, before: text(lines.filter((line) => !line.startsWith("+"))), after: text(lines) };
}

const PRELUDE = "let placed = 0;\nconst userOf = ({ headers }) => headers['x-user'] ?? headers.get?.('x-user');\nasync function placeOrder(order) {\n  placed += 1;\n  return { ...order, placed };\n}\n";
const LISTEN = {
  express: 'const server = app.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));\n',
  fastify: 'console.log(await app.listen({ port: 0, host: "127.0.0.1" }));\n',
};

/** Creates a project that has the package installed. */
function project(t) {
  const folder = mkdtempSync(join(tmpdir(), "onceward-readme-"));
  t.after(() => rmSync(folder, { recursive: true }));
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  return folder;
}

/** Points a snippet at a service. The package finds itself by its own name. */
function located(text, service) {
  return text.replaceAll("http://127.0.0.1:8080", service.url).replace(/"onceward-node(\/\w+)?"/g, (_, entry = "/index") => `"${root}dist/esm${entry}.js"`);
}

async function place(url, key) {
  const headers = { "content-type": "application/json", "idempotency-key": key, "x-user": "alice" };
  return read(await fetch(`${url}/orders`, { method: "POST", headers, body: '{"item":"tea"}' }));
}

for (const stack of ["express", "fastify"]) {
  test(`${stack}: two lines protect a route`, async (t) => {
    const service = await startService(t, { apiKey: "" });
    const folder = project(t);
    const { added, before, after } = programs(stack);
    assert.equal(added, 2);
    for (const [name, text, second] of [["before", before, 2], ["after", after, 1]]) {
      writeFileSync(join(folder, `${name}.mjs`), located(PRELUDE + text + "\n" + LISTEN[stack], service));
      const { url } = await startProgram(t, join(folder, `${name}.mjs`), {}, folder);
      const answers = [await place(url, "k"), await place(url, "k")];
      assert.deepEqual(answers.map(({ status, text }) => [status, JSON.parse(text)]), [[201, { item: "tea", placed: 1 }], [201, { item: "tea", placed: second }]], name);
    }
  });
}

test("fetch: the snippet runs an order once", async (t) => {
  const service = await startService(t, { apiKey: "" });
  const folder = project(t);
  writeFileSync(join(folder, "fetch.mjs"), located(PRELUDE + snippet("fetch").join("\n"), service));
  const { POST } = await import(join(folder, "fetch.mjs"));
  const send = (user) => POST(new Request("http://shop/orders", { method: "POST", headers: { "idempotency-key": "k", ...user }, body: '{"item":"tea"}' }));
  const answers = [await read(await send({ "x-user": "alice" })), await read(await send({ "x-user": "alice" })), await read(await send())];
  assert.deepEqual(answers.map(({ outcome }) => outcome), ["executed", "replayed", "unauthorized"]);
  assert.equal(answers[1].text, '{"item":"tea","placed":1}');
});

test("once: the snippet charges a message once", async (t) => {
  const service = await startService(t, { apiKey: "" });
  const folder = project(t);
  writeFileSync(join(folder, "once.mjs"), located(PRELUDE + snippet("once").join("\n"), service));
  const { charge } = await import(join(folder, "once.mjs"));
  const message = { id: "m1", customer: "alice" };
  assert.deepEqual([await charge(message), await charge(message)], [{ ...message, placed: 1 }, { ...message, placed: 1 }]);
  await assert.rejects(charge({ ...message, amount: 2 }), { code: "key_reused" });
});

/** What the application has already, by snippet. */
const DECLARED = {
  express: "declare function userOf(request: import('express').Request): string | undefined;",
  fastify: "declare function userOf(request: import('fastify').FastifyRequest): number | undefined;",
  fetch: "declare function userOf(request: Request): Promise<string | null>;",
};

test("the snippets compile in TypeScript", (t) => {
  const folder = project(t);
  for (const [name, declared] of Object.entries(DECLARED)) {
    const text = name === "fetch" ? snippet(name).join("\n") : programs(name).after;
    writeFileSync(join(folder, `${name}.ts`), `${declared}\ndeclare function placeOrder(order: unknown): Promise<object>;\n${text}\n`);
  }
  const paths = Object.fromEntries(["", "/express", "/fastify", "/fetch"].map((entry) => [`onceward-node${entry}`, [`${root}dist/esm${entry || "/index"}.d.ts`]]));
  const compilerOptions = { module: "nodenext", target: "es2022", lib: ["es2023", "esnext.disposable"], types: ["node"], strict: true, exactOptionalPropertyTypes: true, noEmit: true, skipLibCheck: true, paths };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.ts"] }));
  const { status, stdout } = spawnSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", folder]);
  assert.deepEqual([status, stdout.toString()], [0, ""]);
});

test("links lead to files", () => {
  const links = [...readme.matchAll(/\]\(([^)#]+)/g)].map(([, link]) => link);
  assert.ok(links.length > 3);
  for (const link of links) assert.ok(existsSync(join(root, link)), link);
});
