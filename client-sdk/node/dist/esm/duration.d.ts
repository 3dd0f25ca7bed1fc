/** Parses a duration of the service. Returns milliseconds. */
export declare function milliseconds(duration: string): number;
/** Formats milliseconds as a duration of the service. */
export declare function duration(milliseconds: number): string;
