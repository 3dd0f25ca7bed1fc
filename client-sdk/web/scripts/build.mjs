// Builds dist/ from src/: `npm run build`. With an argument, builds into that folder: a test compares it with dist/.

import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { minify } from "terser";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = process.argv[2] ?? `${root}dist`;
const options = { absWorkingDir: root, bundle: true, target: "es2022", charset: "utf8", legalComments: "none", tsconfigRaw: {} };

const { outputFiles } = await build({ ...options, entryPoints: ["src/browser_script.ts"], format: "iife", write: false });
// Members that neither a page nor the browser sees. Members stored in sessionStorage are not renamed: another build may read them.
const internal = /^(isAllowedOrigin|ensureToken|renew|touch|awaitsResponse|attemptToken|requestEnded|leavePage|content|result)$/;
const { code } = await minify(outputFiles[0].text, {
  ecma: 2020,
  compress: { passes: 6, unsafe_arrows: true, unsafe_comps: true },
  mangle: { properties: { regex: internal } },
});
mkdirSync(folder, { recursive: true });
writeFileSync(`${folder}/onceward.js`, `${code}\n`);
await build({ ...options, entryPoints: ["src/chinese_script.ts"], format: "iife", minify: true, outfile: `${folder}/onceward.zh-CN.js` });
await build({ ...options, entryPoints: ["src/chinese_messages.ts"], outfile: `${folder}/zh-CN.mjs`, format: "esm" });
await build({ ...options, entryPoints: ["src/index.ts"], outfile: `${folder}/onceward.mjs`, format: "esm" });
execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", ".", "--outDir", folder], { cwd: root, stdio: "inherit" });
