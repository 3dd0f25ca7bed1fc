/** Returns a digest of everything that a form sends except its token, and of `target`. */
export declare function digest(data: FormData, target: unknown): number;
