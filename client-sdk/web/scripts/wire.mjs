// Writes src/wire.ts from openapi/openapi.json and openapi/src/header.rs: `npm run wire`. A test compares.

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const openapi = new URL("../../../openapi/", import.meta.url);
const target = new URL("../src/wire.ts", import.meta.url);
const schemas = JSON.parse(readFileSync(new URL("openapi.json", openapi), "utf8")).components.schemas;
const names = readFileSync(new URL("src/header.rs", openapi), "utf8");

/** The header names that this package knows, and what it calls them. */
const HEADERS = {
  token: "TOKEN",
  key: "IDEMPOTENCY_KEY",
  replayed: "IDEMPOTENT_REPLAYED",
  outcome: "OUTCOME",
  retryAfter: "RETRY_AFTER",
};

function constant(name) {
  const found = names.match(new RegExp(`pub const ${name}: &str = "([^"]+)";`));
  if (!found) throw new Error(`header.rs has no ${name}`);
  return found[1];
}

function typeOf(property) {
  if (property.$ref) return property.$ref.split("/").pop();
  const types = [property.type].flat().filter((type) => type !== "null");
  return types.map((type) => (type === "integer" ? "number" : type)).join(" | ");
}

function comment(text, indent = "") {
  return `${indent}/** ${text.replaceAll("\n", " ")} */\n`;
}

function union(name) {
  const members = schemas[name].enum.map((member) => `\n  | "${member}"`).join("");
  return `${comment(schemas[name].description)}export type ${name} =${members};\n`;
}

function body(name) {
  const { description, properties, required = [] } = schemas[name];
  const fields = Object.entries(properties).map(([field, property]) => {
    const mark = required.includes(field) ? "" : "?";
    return `${comment(property.description, "  ")}  ${field}${mark}: ${typeOf(property)};\n`;
  });
  return `${comment(description)}export interface ${name} {\n${fields.join("")}}\n`;
}

/** The text that src/wire.ts has to have. */
export function wire() {
  const headers = Object.entries(HEADERS).map(([ours, theirs]) => `  ${ours}: "${constant(theirs)}",\n`);
  return [
    "// The wire contract. Written by `npm run wire` from openapi/: change it there.\n",
    comment("Header names.") + `export const HEADER = {\n${headers.join("")}} as const;\n`,
    comment("The form field and query parameter that carries a token.") + `export const FIELD = "${constant("FIELD")}";\n`,
    union("Code"),
    union("Retry"),
    body("Problem"),
    body("TokenRequest"),
    body("IssuedToken"),
  ].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(target, wire());
