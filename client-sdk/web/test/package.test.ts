// The published package: it matches the contract and the sources, and stays small.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { wire } from "../scripts/wire_contract.mjs";
import { isHandlers, isRejection } from "../src/retry_rules.js";

const root = new URL("..", import.meta.url).pathname;
const read = (path: string) => readFileSync(join(root, path), "utf8");

test("codes, header names and bodies match openapi/ (otherwise run `npm run wire`)", () => {
  expect(read("src/wire_contract.ts")).toBe(wire());
});

test("the first letters distinguish the outcomes of a handler from every code of a rejection", () => {
  const outcomes = ["executed", "replayable", "not_applied", "not_released", "unknown", "replayed", "unprotected"];
  expect(outcomes.filter(isHandlers)).toEqual(outcomes);
  const codes: string[] = JSON.parse(read("../../openapi/openapi.json")).components.schemas.Code.enum;
  expect(codes.length).toBeGreaterThan(20);
  expect([...codes, "redeemed", ""].filter(isHandlers)).toEqual([]);
  expect([...outcomes, ...codes, "redeemed", ""].filter(isRejection)).toEqual(codes);
});

test("dist/ matches the sources (otherwise run `npm run build`)", () => {
  const folder = mkdtempSync(join(tmpdir(), "onceward-dist-"));
  execFileSync(process.execPath, ["scripts/build.mjs", folder], { cwd: root });
  const built = readdirSync(folder).toSorted();
  expect(readdirSync(join(root, "dist")).toSorted()).toEqual(built);
  for (const file of built) expect(read(`dist/${file}`) == readFileSync(join(folder, file), "utf8"), file).toBe(true);
  rmSync(folder, { recursive: true });
});

test("the script is at most 5,300 bytes gzipped", () => {
  const size = gzipSync(read("dist/onceward.js"), { level: 9 }).length;
  console.log(`dist/onceward.js: ${size} bytes gzipped`);
  expect(size).toBeLessThanOrEqual(5300);
});

test("the Chinese messages are complete, and a small file of their own", async () => {
  const { messages } = await import("../src/form_status.js");
  const { chineseMessages } = await import("../src/chinese_messages.js");
  expect(Object.keys(chineseMessages)).toEqual(Object.keys(messages));
  for (const text of Object.values(chineseMessages)) expect(text).toMatch(/^[\u4e00-\u9fff，。]+$/);
  expect(gzipSync(read("dist/onceward.zh-CN.js"), { level: 9 }).length).toBeLessThanOrEqual(800);
  expect(read("dist/onceward.js")).not.toMatch(/[\u4e00-\u9fff]/);
});

test("the scripts for libraries are at most 5,900 bytes gzipped", () => {
  for (const name of ["htmx", "turbo"]) {
    const size = gzipSync(read(`dist/onceward-${name}.js`), { level: 9 }).length;
    console.log(`dist/onceward-${name}.js: ${size} bytes gzipped`);
    expect(size, name).toBeLessThanOrEqual(5900);
  }
});

test("the scripts contain nothing that a strict content security policy blocks", () => {
  for (const name of ["onceward", "onceward-htmx", "onceward-turbo", "onceward.zh-CN"]) {
    expect(read(`dist/${name}.js`), name).not.toMatch(/\beval\b|new Function|innerHTML|insertAdjacentHTML|document\.write|\.style\b|javascript:/);
  }
});

test("the package contains builds, types, licenses and README, and has no dependencies", () => {
  const [packed] = JSON.parse(execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: root, stdio: ["ignore", "pipe", "ignore"] }).toString());
  const files: string[] = packed.files.map(({ path }: { path: string }) => path);
  const types = readdirSync(join(root, "src")).map((file) => `dist/${file.replace(/\.ts$/, ".d.ts")}`);
  const scripts = ["onceward.js", "onceward-htmx.js", "onceward-turbo.js", "onceward.zh-CN.js"];
  const modules = ["onceward", "axios", "axios-auto", "htmx", "react", "turbo", "vue", "zh-CN"].map((name) => `${name}.mjs`);
  const own = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json", ...[...scripts, ...modules].map((file) => `dist/${file}`)];
  expect(files.toSorted()).toEqual([...own, ...types].toSorted());
  for (const file of ["LICENSE-APACHE", "LICENSE-MIT"]) expect(read(file)).toBe(read(`../../${file}`));
  const { dependencies, exports, peerDependencies, peerDependenciesMeta } = JSON.parse(read("package.json"));
  expect(dependencies).toBe(undefined);
  for (const name of Object.keys(peerDependencies)) expect(peerDependenciesMeta[name]?.optional, name).toBe(true);
  const paths: string[] = Object.values<any>(exports).flatMap((entry) => (typeof entry == "string" ? entry : Object.values(entry)));
  for (const path of paths) expect(files).toContain(path.slice(2));
});

test("the packed package has the right types for ESM, CommonJS and a bundler", () => {
  const folder = mkdtempSync(join(tmpdir(), "onceward-types-"));
  const npm = (...command: string[]) => execFileSync("npm", command, { cwd: root, stdio: ["ignore", "pipe", "ignore"] }).toString();
  const [{ filename }] = JSON.parse(npm("pack", "--json", "--ignore-scripts", "--pack-destination", folder));
  const own = join(folder, "node_modules/onceward");
  mkdirSync(own, { recursive: true });
  execFileSync("tar", ["-xf", join(folder, filename), "-C", own, "--strip-components=1"]);
  for (const name of ["axios", "react", "vue", "@types"]) symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name));
  const program = (load: (from: string) => string) => `
    export async function place(form: HTMLFormElement): Promise<string> {
      const { createOnceward } = ${load("onceward")};
      const result = await createOnceward({ forms: "all" }).fetch("/orders", { form });
      return result.outcome == "executed" ? result.response.text() : "";
    }
    export async function adapt() {
      const { guardAxios } = ${load("onceward/axios")};
      const [{ useSubmission }, vue] = [${load("onceward/react")}, ${load("onceward/vue")}];
      const { submit, pending } = useSubmission("/orders", { method: "PUT", limit: 1000 });
      const isPending: boolean = pending || vue.useSubmission(() => "/orders").pending.value;
      // @ts-expect-error: a limit is a number.
      useSubmission("/orders", { limit: "soon" });
      return [guardAxios, isPending, (await submit({ item: "tea" })).outcome];
    }`;
  const files = { "esm.mts": "node16", "commonjs.cts": "node16", "bundled.ts": "preserve" };
  for (const [file, module] of Object.entries(files)) {
    writeFileSync(join(folder, file), program((from) => `await import("${from}")`));
    const compilerOptions = { module, target: "es2022", lib: ["es2023", "dom", "dom.iterable"], types: [], strict: true, exactOptionalPropertyTypes: true, noEmit: true, skipLibCheck: true };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: [file] }));
    const { status, stdout } = spawnSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc")], { cwd: folder });
    expect([status, stdout.toString()], file).toEqual([0, ""]);
  }
  rmSync(folder, { recursive: true });
});

test("the module can be imported outside of a browser, without side effects", async () => {
  const { createOnceward } = await import(join(root, "dist/onceward.mjs"));
  expect(createOnceward({ baseUrl: "https://shop.test" }).fetch).toBeTypeOf("function");
});

test("the lock file contains no registry URL", () => {
  expect(read("package-lock.json")).not.toMatch(/"resolved"|https?:\/\/[^"]*registry/);
});
