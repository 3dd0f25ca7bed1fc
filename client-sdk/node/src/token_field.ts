// The form field that carries a token.

import { boundary, mediaType } from "./fingerprint.js";

/** The name of the form field. */
export const FIELD = "_onceward";

/** Returns the token in the body of a form, `undefined` if there is none. */
export function tokenField(contentType: string, body: Uint8Array): string | undefined {
  if (mediaType(contentType) === "application/x-www-form-urlencoded") {
    return new URLSearchParams(Buffer.from(body).toString()).get(FIELD) || undefined;
  }
  const mark = boundary(contentType);
  return mark ? multipartField(Buffer.from(body).toString("latin1"), mark) : undefined;
}

function multipartField(body: string, mark: string): string | undefined {
  for (const part of `\r\n${body}`.split(`\r\n--${mark}`)) {
    const end = part.indexOf("\r\n\r\n");
    if (end >= 0 && isTokenPart(part.slice(0, end))) return part.slice(end + 4) || undefined;
  }
  return undefined;
}

function isTokenPart(head: string): boolean {
  const disposition = head.split("\r\n").find((line) => /^content-disposition:/i.test(line)) ?? "";
  return /;\s*name="?([^";]*)"?/i.exec(disposition)?.[1] === FIELD;
}
