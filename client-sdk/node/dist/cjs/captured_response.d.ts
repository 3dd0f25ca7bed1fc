import type { ServerResponse } from "node:http";
import type { HandlerResponse } from "./protected_run.js";
import type { Header } from "./reply.js";
/** Returns the headers to add to a response. */
export type Settle = (response: HandlerResponse) => Promise<Header[]>;
/**
 * Captures the response. One that ends with its first chunk, or announces a length within `limit`, is held as a whole. Any other is
 * streamed: its claim is settled without a body, and what was written meanwhile follows.
 */
export declare function captureResponse(response: ServerResponse, limit: number, settle: Settle): void;
