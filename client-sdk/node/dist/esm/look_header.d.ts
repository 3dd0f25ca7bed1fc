/**
 * Returns whether the client asks for the stored response only, so that nothing may run. Throws `Rejected` for any other value than `true`
 * and `false`: the client wants to control whether the handler runs.
 */
export declare function isLook(header?: string): boolean;
