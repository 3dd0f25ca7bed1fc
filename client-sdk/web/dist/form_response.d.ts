import type { Onceward } from "./index.js";
/**
 * Reports the response to the request with these data, or `null` if none came. A response to an earlier submit of the form, with another token, does
 * not settle the last one.
 */
export declare function reportResponse(onceward: Onceward, form: unknown, sent: unknown, response: Response | null): void;
