// Durations on the wire, such as `333ms` or `5s`.
const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** Parses a duration of the service. Returns milliseconds. */
export function milliseconds(duration) {
    const [, number, unit = ""] = /^(\d+)(ms|s|m|h|d)$/.exec(duration) ?? [];
    const factor = UNITS[unit];
    if (factor === undefined)
        throw new Error(`not a duration of Onceward: ${duration}`);
    return Number(number) * factor;
}
/** Formats milliseconds as a duration of the service. */
export function duration(milliseconds) {
    return `${Math.round(milliseconds)}ms`;
}
