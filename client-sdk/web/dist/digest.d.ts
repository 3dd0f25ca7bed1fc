/** A digest of everything a form sends except its token, and of `target`: where and how it is sent. */
export declare function digest(data: FormData, target: unknown): number;
