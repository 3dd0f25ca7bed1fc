import type { Onceward } from "./index.js";
/** Reports the responses of guarded forms that Turbo sends. A form recovers as soon as its response arrives. */
export declare function watchTurbo(onceward: Onceward): void;
