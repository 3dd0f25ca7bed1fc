// The published package: it matches its sources, and works when it is installed from its tarball.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const root = new URL("..", import.meta.url).pathname;
const text = (path) => readFileSync(join(root, path), "utf8");
const ENTRIES = ["", "/express", "/fastify", "/fetch"];

function folder(t) {
  const path = mkdtempSync(join(tmpdir(), "onceward-package-"));
  t.after(() => rmSync(path, { recursive: true }));
  return path;
}

function files(path) {
  return readdirSync(path, { recursive: true, withFileTypes: true }).flatMap((entry) => (entry.isFile() ? [join(entry.parentPath, entry.name).slice(path.length + 1)] : []));
}

test("dist/ matches the sources (otherwise run `npm run build`)", (t) => {
  const built = join(folder(t), "dist");
  execFileSync(process.execPath, ["scripts/build.mjs", built], { cwd: root });
  assert.deepEqual(files(join(root, "dist")).sort(), files(built).sort());
  for (const file of files(built)) assert.equal(text(`dist/${file}`), readFileSync(join(built, file), "utf8"), file);
});

/** Installs the package as the README says. Returns the folder of its user, beside a clean clone. */
function install(t) {
  const [place, install] = [folder(t), text("README.md").match(/```sh\n([^]*?)```/)[1]];
  const [clone, user] = [join(place, "onceward/client-sdk/node"), join(place, "application")];
  for (const each of [clone, user]) mkdirSync(each, { recursive: true });
  execFileSync("sh", ["-c", `git ls-files . | tar -c -T - | tar -x -C ${clone}`], { cwd: root });
  writeFileSync(join(user, "package.json"), "{}");
  // A later installation keeps the copy.
  execFileSync("sh", ["-ec", `${install}npm install`], { cwd: user, env: { ...process.env, npm_config_offline: "true" }, stdio: ["ignore", "ignore", "inherit"] });
  return user;
}

test("packed package works from ESM and CommonJS", (t) => {
  const user = install(t);
  assert.deepEqual(readdirSync(join(user, "node_modules")).filter((name) => !name.startsWith(".")), ["onceward-node"]);
  for (const entry of ENTRIES) {
    const use = `const { Onceward, anonymous } = x; new Onceward("http://localhost:1"); console.log(anonymous(), Object.keys(x).length)`;
    const node = (...options) => execFileSync(process.execPath, options, { cwd: user }).toString();
    const imported = node("--input-type=module", "-e", `import * as x from "onceward-node${entry}"; ${use}`);
    assert.equal(imported, node("-e", `const x = require("onceward-node${entry}"); ${use}`));
    assert.match(imported, /^anonymous \d+\n$/);
  }
});

/** A program that uses every entry, in the syntax of ESM or of TypeScript for CommonJS. */
function program(load) {
  return `${load("client", "onceward-node")}
${load("express", "onceward-node/express")}
${load("fastify", "onceward-node/fastify")}
${load("fetches", "onceward-node/fetch")}
const onceward: client.Onceward = new express.Onceward("http://127.0.0.1:8080");
const route: fastify.ProtectedRoute = fastify.protectKey(onceward, { subject: (request) => request.ip });
const handler: (request: Request) => Promise<Response> = fetches.protectToken(onceward, { subject: client.anonymous }, () => new Response(""));
const claim: Promise<client.Claim | client.Replay> = onceward.claim({ key: "k", action: "a", subject: "s" });
void [route, handler, claim, express.protectKey(onceward, { subject: (request) => request.headers.host })];
// @ts-expect-error: a subject is required.
void onceward.claim({ key: "k", action: "a" });
`;
}

test("packed package has the right types for ESM and CommonJS", (t) => {
  const user = install(t);
  // The user has a framework and the types of Node.js.
  for (const name of ["fastify", "@types"]) symlinkSync(join(root, "node_modules", name), join(user, "node_modules", name));
  writeFileSync(join(user, "esm.mts"), program((name, from) => `import * as ${name} from "${from}";`));
  writeFileSync(join(user, "commonjs.cts"), program((name, from) => `import ${name} = require("${from}");`));
  const compilerOptions = { module: "node16", target: "es2022", lib: ["es2023", "esnext.disposable"], types: ["node"], strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false };
  writeFileSync(join(user, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.mts", "*.cts"] }));
  execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "--noEmit"], { cwd: user, stdio: ["ignore", "inherit", "inherit"] });
});

test("the package contains builds, types, licenses and README, and has no dependencies", () => {
  const [{ files: packed }] = JSON.parse(execFileSync("npm", ["pack", "--dry-run", "--json"], { cwd: root, stdio: ["ignore", "pipe", "ignore"] }));
  const paths = packed.map(({ path }) => path);
  const own = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json"];
  assert.deepEqual(paths.toSorted(), [...own, ...files(join(root, "dist")).map((file) => `dist/${file}`)].toSorted());
  for (const file of ["LICENSE-APACHE", "LICENSE-MIT"]) assert.equal(text(file), text(`../../${file}`));
  const { dependencies, peerDependencies, exports } = JSON.parse(text("package.json"));
  assert.deepEqual([dependencies, peerDependencies], [undefined, undefined]);
  for (const entry of ENTRIES) {
    for (const { types, default: code } of Object.values(exports[`.${entry}`])) assert.ok(paths.includes(types.slice(2)) && paths.includes(code.slice(2)));
  }
});

test("the lock file contains no registry URL", () => {
  assert.doesNotMatch(text("package-lock.json"), /"resolved"|https?:\/\/[^"]*registry/);
});
