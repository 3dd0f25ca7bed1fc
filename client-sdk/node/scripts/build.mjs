// Builds dist/ from src/: `npm run build`. With an argument, builds into that folder: a test compares it with dist/.
//
// dist/esm and dist/cjs hold one file per source, so that all entry points of a format share their modules.

import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = process.argv[2] ?? `${root}dist`;

function compile(format, ...options) {
  const tsc = ["node_modules/typescript/bin/tsc", "-p", ".", "--outDir", `${folder}/${format}`, ...options];
  execFileSync(process.execPath, tsc, { cwd: root, stdio: "inherit" });
}

rmSync(folder, { recursive: true, force: true });
compile("esm");
compile("cjs", "--module", "commonjs", "--moduleResolution", "bundler", "--verbatimModuleSyntax", "false");
mkdirSync(`${folder}/cjs`, { recursive: true });
writeFileSync(`${folder}/cjs/package.json`, '{ "type": "commonjs" }\n');
