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
 * Returns the JSON of a body that was parsed before, with the members of each object in order. The parsed value is compared, which is what
 * the handler receives: `1.0` and `1` are the same content, and so are two fractions that are rounded to the same number.
 *
 * Throws if the value has a number above 2^53: two account numbers of 20 digits may be the same number after parsing.
 */
export declare function canonicalJson(value: unknown): string;
