// The installation of the README: in an empty folder, beside a clone that has libraries of its own.

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";
import { expect, onTestFinished, test } from "vitest";

const root = new URL("..", import.meta.url).pathname;
const LIBRARIES = ["axios", "react", "vue"];
/** The lines of each installation in the README. */
const INSTALLATIONS = [...readFileSync(join(root, "README.md"), "utf8").matchAll(/```sh\n([^]*?)```/g)].map(([, lines]) => lines!);

/** Installs the package by these lines, and everything again. Returns the folder of the application. */
function install(lines: string): string {
  const folder = mkdtempSync(join(tmpdir(), "onceward-install-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const [clone, application] = [join(folder, "onceward/client-sdk/web"), join(folder, "application")];
  for (const each of [clone, join(application, "node_modules")]) mkdirSync(each, { recursive: true });
  execFileSync("sh", ["-c", `git ls-files . | tar -c -T - | tar -x -C ${clone}`], { cwd: root });
  for (const name of LIBRARIES) cpSync(join(root, "node_modules", name), join(clone, "node_modules", name), { recursive: true });
  writeFileSync(join(application, "package.json"), '{ "private": true }');
  // The registry is not asked: the application has the libraries of this package.
  execFileSync("sh", ["-ec", `${lines}npm install`], { cwd: application, env: { ...process.env, npm_config_offline: "true" }, stdio: "ignore" });
  for (const name of [...LIBRARIES, "@vue"]) symlinkSync(join(root, "node_modules", name), join(application, "node_modules", name));
  return application;
}

/** Bundles a program. Returns its code, and the number of copies of a module. */
async function bundle(application: string, contents: string) {
  const { outputFiles, metafile } = await build({ stdin: { contents, resolveDir: application }, absWorkingDir: application, bundle: true, write: false, metafile: true, format: "iife", logLevel: "silent" });
  const copies = (module: string) => Object.keys(metafile.inputs).filter((path) => path.endsWith(`node_modules/${module}`)).length;
  return { code: outputFiles[0]!.text, copies };
}

test("an application that installs the package as the README says is bundled with its own libraries", async () => {
  const [usual, ...others] = INSTALLATIONS;
  expect(others).toEqual(LIBRARIES.map((name) => usual!.replace("npm install ", `npm install ${name} `)));
  const application = install(usual!);
  const { code, copies } = await bundle(application, `
    import axios from "axios";
    import "onceward/axios/auto";
    import "react"; import "vue";
    import * as hooks from "onceward/react"; import * as composables from "onceward/vue";
    console.log(axios.interceptors.request.handlers.length, typeof hooks.useSubmission, typeof composables.useSubmission);`);
  expect(["react/index.js", "vue/dist/vue.runtime.esm-bundler.js", "axios/lib/axios.js"].map(copies)).toEqual([1, 1, 1]);
  expect(execFileSync(process.execPath, ["-"], { input: code }).toString()).toBe("1 function function\n");
});
