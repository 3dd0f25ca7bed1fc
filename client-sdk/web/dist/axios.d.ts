import { type AxiosInstance } from "axios";
import { type Onceward, type Options, type Result } from "./index.js";
declare global {
    /** Defined by the script of this package. */
    var onceward: Onceward;
}
declare module "axios" {
    interface AxiosRequestConfig {
        onceward?: RequestSettings | undefined;
    }
}
/** The settings of one request, and its outcome: `axios.post(url, data, { onceward: { key: "order-4711" } })`. */
export interface RequestSettings {
    /** Your own idempotency key, sent instead of a token. */
    key?: string;
    /** The action that the token is bound to, as in `POST /orders`. */
    action?: string;
    /** Set on `response.config` and `error.config`. */
    outcome?: Result["outcome"];
}
/** The settings of `createOnceward`, and the instance that guards the page's forms. Default: that of the script. */
export interface AxiosOptions extends Options {
    onceward?: Onceward;
}
/**
 * Sends each request except GET, HEAD and OPTIONS with a token or key, and with retries, as `fetch` of this package does. `axios(error.config)`
 * repeats the same submission. Requests to other origins are not changed.
 */
export declare function guardAxios<T extends AxiosInstance>(instance: T, { onceward, ...options }?: AxiosOptions): T;
