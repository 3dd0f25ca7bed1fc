// The real libraries from npm that send forms, and a page for each.

import { readFileSync } from "node:fs";
import { build } from "esbuild";

const MODULES = new URL("../node_modules/", import.meta.url);
const file = (path) => () => readFileSync(new URL(path, MODULES), "utf8");

/** Bundles a module for a page, with its imports from npm. `mode` is the build of the libraries. */
export async function bundle(contents, mode = "production") {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: MODULES.pathname, loader: "jsx" },
    bundle: true,
    write: false,
    jsx: "automatic",
    define: { "process.env.NODE_ENV": JSON.stringify(mode) },
  });
  return outputFiles[0].text;
}

const PLACE = '<div id="place"></div>';
const FIELDS = '<input name="item" required><button>Order</button>';
const form = (attributes) => `<form ${attributes}>${FIELDS}</form>${PLACE}`;

const AXIOS = `
  document.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.currentTarget;
    const { data } = await axios.postForm(form.getAttribute("action"), form).catch(({ response }) => response);
    document.getElementById("place").innerHTML = data;
  });`;

const REACT = `
  import { createRoot } from "react-dom/client";
  const root = document.getElementById("root");
  const { url, ...props } = root.dataset;
  async function order(data) {
    const answer = await fetch(url, { method: "POST", body: data });
    document.getElementById("place").innerHTML = await answer.text();
  }
  const marks = "guarded" in props ? { "data-onceward": "" } : {};
  createRoot(root).render(<form action={order} {...marks}><input name="item" required /><button>Order</button></form>);`;

/**
 * `script` is the library; `body(url, mark)` the page's body, whose form sends to `url`; `answer` the kind of response of the shop; `takesToken` is
 * true if the form has `method="post"` and therefore carries a token of the SDK; `leaves` is true if the response is another page.
 */
export const LIBRARIES = {
  "htmx 2": { script: file("htmx2/dist/htmx.js"), answer: "bare", body: (url, mark) => form(`hx-post="${url}" hx-target="#place" ${mark}`) },
  "htmx 2 with method=post": {
    script: file("htmx2/dist/htmx.js"),
    answer: "bare",
    takesToken: true,
    body: (url, mark) => form(`method="post" action="${url}" hx-post="${url}" hx-target="#place" ${mark}`),
  },
  "htmx 4": { script: file("htmx4/dist/htmx.js"), answer: "bare", body: (url, mark) => form(`hx-post="${url}" hx-target="#place" ${mark}`) },
  "htmx 4 with method=post": {
    script: file("htmx4/dist/htmx.js"),
    answer: "bare",
    takesToken: true,
    body: (url, mark) => form(`method="post" hx-post="${url}" hx-target="#place" ${mark}`),
  },
  "Turbo Drive": {
    script: file("@hotwired/turbo/dist/turbo.es2017-umd.js"),
    answer: "elsewhere",
    takesToken: true,
    leaves: true,
    body: (url, mark) => form(`method="post" action="${url}" ${mark}`),
  },
  "a Turbo frame": {
    script: file("@hotwired/turbo/dist/turbo.es2017-umd.js"),
    answer: "frame",
    takesToken: true,
    body: (url, mark) =>
      `<form method="post" action="${url}" data-turbo-frame="place" ${mark}>${FIELDS}</form><turbo-frame id="place"></turbo-frame>`,
  },
  "a Turbo stream": {
    script: file("@hotwired/turbo/dist/turbo.es2017-umd.js"),
    answer: "stream",
    takesToken: true,
    body: (url, mark) => form(`method="post" action="${url}" ${mark}`),
  },
  axios: {
    script: () => `${file("axios/dist/axios.js")()}\n${AXIOS}`,
    answer: "bare",
    takesToken: true,
    body: (url, mark) => form(`method="post" action="${url}" ${mark}`),
  },
  "a form action of React": {
    script: () => bundle(REACT),
    answer: "bare",
    body: (url, mark) => `<div id="root" data-url="${url}" ${mark && "data-guarded"}></div>${PLACE}`,
  },
};
