// Builds dist/ from src/: `npm run build`. With an argument, builds into that folder: a test compares it with dist/.

import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { minify } from "terser";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = process.argv[2] ?? `${root}dist`;
const options = { absWorkingDir: root, bundle: true, target: "es2022", charset: "utf8", legalComments: "none", tsconfigRaw: {} };

// Members that neither a page nor the browser sees. Members stored in sessionStorage are not renamed: another build may read them.
const internal = /^(isAllowedOrigin|ensureToken|renew|touch|awaitsResponse|attemptToken|requestEnded|leavePage|life)$/;
/** The scripts for pages. Those for a library contain the first; the one for a language contains its messages. */
const scripts = { onceward: "browser_script", "onceward-htmx": "htmx_script", "onceward-turbo": "turbo_script", "onceward.zh-CN": "chinese_script" };
/** The modules for bundlers. */
const modules = { onceward: "index", axios: "axios", "axios-auto": "axios_auto", htmx: "htmx", react: "react", turbo: "turbo", vue: "vue", "zh-CN": "chinese_messages" };

mkdirSync(folder, { recursive: true });
for (const [name, source] of Object.entries(scripts)) {
  const { outputFiles } = await build({ ...options, entryPoints: [`src/${source}.ts`], format: "iife", minifySyntax: true, ignoreAnnotations: true, write: false });
  const { code } = await minify(outputFiles[0].text, {
    ecma: 2020,
    compress: { passes: 2, inline: 1, unsafe: true, unsafe_arrows: true, unsafe_comps: true },
    mangle: { properties: { regex: internal } },
  });
  writeFileSync(`${folder}/${name}.js`, `${code}\n`);
}
/** An adapter imports the core and other adapters as modules, so that a page has each once. */
const MODULE = { "./index.js": "./onceward.mjs", "./axios.js": "./axios.mjs" };
const apart = {
  name: "apart",
  setup: ({ onResolve }) => onResolve({ filter: /^\.\/(index|axios)\.js$/ }, ({ path }) => ({ path: MODULE[path], external: true })),
};
for (const [name, source] of Object.entries(modules)) {
  await build({ ...options, entryPoints: [`src/${source}.ts`], outfile: `${folder}/${name}.mjs`, format: "esm", packages: "external", plugins: [apart] });
}
execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", "-p", ".", "--outDir", folder], { cwd: root, stdio: "inherit" });
