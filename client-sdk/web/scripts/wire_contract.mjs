// Writes src/wire_contract.ts from openapi/openapi.json and openapi/src/header.rs: `npm run wire`. A test compares.

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const openapi = new URL("../../../openapi/", import.meta.url);
const target = new URL("../src/wire_contract.ts", import.meta.url);
const schemas = JSON.parse(readFileSync(new URL("openapi.json", openapi), "utf8")).components.schemas;
const names = readFileSync(new URL("src/header.rs", openapi), "utf8");

/** The constants of header.rs that this package uses. */
const NAMES = ["TOKEN", "IDEMPOTENCY_KEY", "IDEMPOTENT_REPLAYED", "OUTCOME", "RETRY", "RETRY_AFTER", "FIELD"];

function constant(name) {
  const found = names.match(new RegExp(`/// (.+)\\npub const ${name}: &str = "([^"]+)";`));
  if (!found) throw new Error(`header.rs has no ${name}`);
  return `${comment(found[1])}export const ${name} = "${found[2]}";\n`;
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

/** Returns the text of src/wire_contract.ts. */
export function wire() {
  return [
    "// The wire contract. Generated from openapi/ by `npm run wire`: do not edit.\n",
    ...NAMES.map(constant),
    union("Code"),
    union("Retry"),
    body("Problem"),
    body("TokenRequest"),
    body("IssuedToken"),
  ].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(target, wire());
