/** The headers that describe the body of a response. They are stored by default. */
export declare const KEPT: ReadonlySet<string>;
/** Headers that are never stored, even if they are named: they reveal a client's credentials, or break the connection of the replay. */
export declare const NEVER_KEPT: ReadonlySet<string>;
export type Header = readonly [name: string, value: string];
/** The status, headers and body of a response that duplicates receive. */
export interface Reply {
    readonly status: number;
    readonly headers?: readonly Header[];
    readonly body?: Uint8Array;
}
/** A reply on the wire. */
export interface WireReply {
    status: number;
    headers?: [string, string][];
    body?: string;
}
/** Returns the headers that are stored: those that describe the body, and those that the application names (in lower case). */
export declare function keptHeaders(headers: Iterable<Header>, named?: readonly string[]): Header[];
/** Returns the reply that stores a value as JSON. */
export declare function replyOfValue(value: unknown): Reply;
/** Returns the value that a reply stores as JSON. */
export declare function valueOfReply(reply: Reply): unknown;
/** Returns whether the status is a number, and the headers are pairs. */
export declare function isReply({ status, headers }: Reply): boolean;
/** Returns a reply as the service receives it. Throws a `TypeError` if it is not one. */
export declare function replyToWire(reply: Reply): WireReply;
export declare function replyFromWire({ status, headers, body }: WireReply): Required<Reply>;
