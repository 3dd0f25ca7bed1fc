import type { IncomingMessage, OutgoingHttpHeader, ServerResponse } from "node:http";
import type { OwnResponse, RequestFacts } from "./protection.js";
import type { Header } from "./reply.js";
/** Returns the facts about a request. A router may have changed its URL, so the original one counts. */
export declare function factsOf(request: IncomingMessage & {
    originalUrl?: string;
}): RequestFacts;
/** Whether nothing can read the body or send a response any more: the client has closed its connection, or a timeout has responded. */
export declare function isOver(request: IncomingMessage, response: ServerResponse): boolean;
/** Sends a response of this package. */
export declare function sendOwn(response: ServerResponse, { status, headers, body }: OwnResponse): void;
/** Sets headers of this package. */
export declare function setHeaders(response: ServerResponse, headers: readonly Header[]): void;
/** Returns the lines of each header. `present` returns those that the response has already. */
export declare function headerLines(headers: readonly Header[], present: (name: string) => OutgoingHttpHeader | undefined): [string, string | string[]][];
/** Returns headers as pairs. */
export declare function headersOf(headers: Readonly<Record<string, OutgoingHttpHeader | undefined>>): Header[];
