/** The content of a request. */
export interface Content {
    readonly method: string;
    /** The path, as sent, without the query. */
    readonly path: string;
    /** The query, as sent, without the question mark. */
    readonly query: string;
    readonly contentType: string;
    readonly body: Uint8Array;
}
/** Returns a content type without its parameters, in lower case. */
export declare function mediaType(contentType: string): string;
/** Returns the boundary of a multipart body, empty if there is none. */
export declare function boundary(contentType: string): string;
/**
 * Returns the SHA-256 digest of method, path, query, media type and body, each after its length.
 *
 * The body is compared by its bytes, also JSON. Only the boundary of a multipart body is left out: browsers create another one for each
 * attempt.
 */
export declare function fingerprint({ method, path, query, contentType, body }: Content): string;
/**
 * Returns the JSON of a value with the members of each object in order, for bodies that were parsed before. Throws if it has a number whose
 * digits were lost: two account numbers of 20 digits may be the same number afterwards.
 */
export declare function canonicalJson(value: unknown): string;
