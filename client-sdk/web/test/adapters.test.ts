// The adapters as a bundler sees them: a bundle contains only what it imports, and importing does nothing.

import { build } from "esbuild";
import { describe, expect, test } from "vitest";

const root = new URL("..", import.meta.url).pathname;

/** A text that only the module of this adapter contains. */
const MARKS = { htmx: "hx-post", turbo: "turbo:submit-end", axios: "interceptors.request.use", react: "useCallback(", vue: "toValue(" };
const EXPORTS = { htmx: "watchHtmx", turbo: "watchTurbo", axios: "guardAxios", react: "useSubmission", vue: "useSubmission" };

/** Bundles a module for a page, without the libraries. */
async function bundle(contents: string): Promise<string> {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: root },
    bundle: true,
    write: false,
    format: "esm",
    external: ["axios", "react", "vue"],
  });
  return outputFiles[0]!.text;
}

describe.each(Object.entries(EXPORTS))("onceward/%s", (name, exported) => {
  test("a bundle with it contains no other adapter", async () => {
    const code = await bundle(`export { ${exported} } from "onceward/${name}";`);
    const found = Object.entries(MARKS).filter(([, mark]) => code.includes(mark));
    expect(found.map(([adapter]) => adapter)).toEqual([name]);
  });

  test("a bundle that imports it and uses nothing is empty", async () => {
    const code = await bundle(`import { ${exported} } from "onceward/${name}";`);
    expect(code.replaceAll(/^import .*$|\/\/.*$/gm, "").trim()).toBe("");
  });

  test("it can be imported outside of a browser", async () => {
    const module = await import(`${root}dist/${name}.mjs`);
    expect(module[exported]).toBeTypeOf("function");
  });
});

test("a bundle of the core contains no adapter", async () => {
  const code = await bundle('export { createOnceward } from "onceward";');
  expect(Object.values(MARKS).filter((mark) => code.includes(mark))).toEqual([]);
});

test("a bundle with two adapters contains the core once", async () => {
  const code = await bundle('export * as react from "onceward/react"; export * as vue from "onceward/vue"; export { createOnceward } from "onceward";');
  expect(code.split("function createOnceward").length).toBe(2);
});

test("onceward/axios/auto is kept by a bundler that drops unused modules", async () => {
  expect(await bundle('import "onceward/axios/auto";')).toContain(MARKS.axios);
});
