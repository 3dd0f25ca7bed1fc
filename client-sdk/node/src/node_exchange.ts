// Requests and responses of `node:http`, as the protection sees them.

import type { IncomingMessage, OutgoingHttpHeader, ServerResponse } from "node:http";
import type { OwnResponse, RequestFacts } from "./protection.js";
import type { Header } from "./reply.js";

/** Returns the facts about a request. A router may have changed its URL, so the original one counts. */
export function factsOf(request: IncomingMessage & { originalUrl?: string }): RequestFacts {
  const [path = "", ...query] = (request.originalUrl ?? request.url ?? "").split("?");
  return {
    method: request.method ?? "",
    path,
    query: query.join("?"),
    contentType: request.headers["content-type"] ?? "",
    header: (name) => merged(request.headers[name]),
  };
}

/** Returns the values of a header as one. */
function merged(values: string | string[] | undefined): string | undefined {
  return Array.isArray(values) ? values.join(", ") : values;
}

/** Whether nothing can read the body or send a response any more: the client has closed its connection, or a timeout has responded. */
export function isOver(request: IncomingMessage, response: ServerResponse): boolean {
  return response.destroyed || response.headersSent || (request.destroyed && !request.readableEnded);
}

/** Sends a response of this package. */
export function sendOwn(response: ServerResponse, { status, headers, body }: OwnResponse): void {
  response.statusCode = status;
  setHeaders(response, headers);
  response.end(body);
}

/** Sets headers of this package. */
export function setHeaders(response: ServerResponse, headers: readonly Header[]): void {
  for (const [name, lines] of headerLines(headers, (name) => response.getHeader(name))) response.setHeader(name, lines);
}

/** Headers to which another middleware contributes: its lines stay. Those of any other header are replaced. */
const SHARED = ["server-timing", "vary"];

/** Returns the lines of each header. `present` returns those that the response has already. */
export function headerLines(headers: readonly Header[], present: (name: string) => OutgoingHttpHeader | undefined): [string, string | string[]][] {
  const lines = new Map<string, string[]>();
  for (const [name, value] of headers) {
    const others = SHARED.includes(name) ? [present(name) ?? []].flat().map(String) : [];
    // A stored `Vary` contains what the middleware has set for the first response.
    const earlier = lines.get(name) ?? others.filter((line) => !value.split(/,\s*/).includes(line));
    lines.set(name, [...earlier, value]);
  }
  // Another middleware, such as `compression`, expects the text of a single line.
  return [...lines].map(([name, [first = "", ...more]]) => [name, more.length > 0 ? [first, ...more] : first]);
}

/** Returns headers as pairs. */
export function headersOf(headers: Readonly<Record<string, OutgoingHttpHeader | undefined>>): Header[] {
  return Object.entries(headers).flatMap(([name, value]) => [value ?? []].flat().map((each): Header => [name, String(each)]));
}
