// Builds dist/ from src/: `npm run build`. With a folder, builds into that: so a test sees whether dist/ has drifted.

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = process.argv[2] ?? `${root}dist`;
const options = { absWorkingDir: root, bundle: true, target: "es2022", charset: "utf8", legalComments: "none", tsconfigRaw: {} };

await build({ ...options, entryPoints: ["src/script.ts"], outfile: `${folder}/onceward.js`, format: "iife", minify: true });
await build({ ...options, entryPoints: ["src/index.ts"], outfile: `${folder}/onceward.mjs`, format: "esm" });
execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", ".", "--outDir", folder], { cwd: root, stdio: "inherit" });
