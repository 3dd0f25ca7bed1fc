/**
 * Returns a digest of a body and of `target`: by its fields, its text or its bytes. A large file counts by its name, size and time, and a stream
 * is never the same. Only the bytes of files and blobs are awaited.
 */
export declare function digestOf(body: unknown, target: unknown[]): number | Promise<number>;
