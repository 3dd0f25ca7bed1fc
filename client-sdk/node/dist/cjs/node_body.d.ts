import type { IncomingMessage } from "node:http";
/** A request whose body another parser may have read before. */
export type NodeRequest = IncomingMessage & {
    body?: unknown;
};
/** The client closed its connection before the body was complete. */
export declare class Aborted extends Error {
    name: string;
}
/**
 * Reads the body, and hands it back. Returns `undefined` if it is larger than `limit`. Throws `Aborted` if the client closes its connection.
 *
 * The stream is read until the message is complete, and then receives its bytes again before it emits `end`: a parser finds it as if it
 * had never been read.
 */
export declare function readBody(request: IncomingMessage, limit: number): Promise<Buffer | undefined>;
