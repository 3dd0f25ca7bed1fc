// Pages that use the adapters, with the real libraries from npm.

import { readFileSync } from "node:fs";
import { bundle } from "./libraries.mjs";

const MODULES = new URL("../node_modules/", import.meta.url);
const file = (path) => () => readFileSync(new URL(path, MODULES), "utf8");

const FIELDS = '<input name="item" required><button>Order</button>';
const PLACE = '<div id="place"></div>';
const SETTINGS = "{ baseUrl: '/web', limit: 4000 }";
const url = (answer) => (path, takes) => `/web/${path}?takes=${takes}&answer=${answer}`;
const bare = { url: url("bare") };
const post = (attributes) => (url) => `<form method="post" action="${url}" ${attributes}>${FIELDS}</form>`;

const hxPost = (url) => `<form hx-post="${url}" hx-target="#place" data-onceward>${FIELDS}</form>${PLACE}`;
const htmx = { ...bare, sdk: "onceward-htmx.js", body: hxPost };
const turbo = { sdk: "onceward-turbo.js", script: file("@hotwired/turbo/dist/turbo.es2017-umd.js") };

/** A page whose form is sent by axios: `sends` is an expression with `url` and `form`. */
const axios = (sends) => ({
  ...bare,
  body: (url) => post("")(url) + PLACE + '<output id="outcome"></output>',
  script: () => bundle(`
    import axios from "axios";
    import { guardAxios } from "onceward/axios";
    guardAxios(axios, ${SETTINGS});
    const form = document.querySelector("form");
    // A request with an unknown outcome is repeated.
    let unknown;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const url = form.getAttribute("action");
      const { data, config } = await (unknown ? axios(unknown) : ${sends}).catch((error) => ({ config: error.config }));
      unknown = config.onceward?.outcome == "unknown" && config;
      document.getElementById("outcome").textContent = config.onceward?.outcome;
      if (data) document.getElementById("place").innerHTML = data;
    });`),
});

const ROOT = (url) => `<div id="root" data-url="${url}"></div>${PLACE}<output id="outcome"></output>`;
const SHOW = `
  const { url } = document.getElementById("root").dataset;
  async function show({ outcome, response }) {
    document.getElementById("outcome").textContent = outcome;
    if (response?.ok) document.getElementById("place").innerHTML = await response.text();
  }`;

const REACT = `
  import { createRoot } from "react-dom/client";
  import { useSubmission } from "onceward/react";
  ${SHOW}
  const settings = ${SETTINGS};
  function Order() {
    const { submit, pending } = useSubmission(url, settings);
    const order = (event) => submit(event).then(show);
    return <form onSubmit={order} data-pending={pending}><input name="item" required /><button>Order</button></form>;
  }
  createRoot(document.getElementById("root")).render(<Order />);`;

const VUE = `
  import { createApp, h } from "vue";
  import { useSubmission } from "onceward/vue";
  ${SHOW}
  createApp({
    setup() {
      const { submit, pending } = useSubmission(url, ${SETTINGS});
      const order = (event) => submit(event).then(show);
      return () => h("form", { onSubmit: order, "data-pending": pending.value }, [h("input", { name: "item", required: true }), h("button", "Order")]);
    },
  }).mount("#root");`;

/**
 * `sdk` is the script of the SDK, if the page has one: then the core guards the form. `script` is the script of the page, `body(url)` its body, and
 * `url(path, takes)` the URL of the shop.
 */
export const ADAPTERS = {
  "htmx 2": { ...htmx, script: file("htmx2/dist/htmx.js") },
  "htmx 4": { ...htmx, script: file("htmx4/dist/htmx.js") },
  "a Turbo stream": { ...turbo, url: url("stream"), body: (url) => post("data-onceward")(url) + PLACE },
  "a Turbo frame": {
    ...turbo,
    url: url("frame"),
    body: (url) => `${post('data-turbo-frame="place" data-onceward')(url)}<turbo-frame id="place"></turbo-frame>`,
  },
  "axios with a form": axios("axios.postForm(url, form)"),
  "axios with data": axios("axios.post(url, new URLSearchParams({ item: form.item.value }))"),
  React: { ...bare, body: ROOT, script: () => bundle(REACT) },
  Vue: { ...bare, body: ROOT, script: () => bundle(VUE) },
};
