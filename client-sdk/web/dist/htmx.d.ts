import type { Onceward, Options } from "./index.js";
/**
 * Guards the forms that htmx sends: each `form[hx-post]` (`hx-put`, `hx-patch`) with `data-onceward`, or each of them with `forms: "all"`, gets
 * `method="post"` and the URL as `action`. A form recovers as soon as its response arrives.
 */
export declare function watchHtmx(onceward: Onceward, { forms }?: Pick<Options, "forms">): void;
