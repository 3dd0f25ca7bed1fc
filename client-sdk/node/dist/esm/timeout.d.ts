/** Returns whether an error, or one in the chain of its causes, is that of a timeout or of an abort. */
export declare function isTimeout(error: unknown): boolean;
