// Digests of the body of a request, for the adapters.

import { digest } from "./digest.js";

let streams = 0;

/**
 * Returns a digest of a body and of `target`: by its fields, its text or its bytes. A file counts by its name, size and time, and a stream is
 * never the same. Only the bytes of a blob are awaited.
 */
export function digestOf(body: unknown, target: unknown[]): number | Promise<number> {
  const compared = comparable(body);
  const fields = body instanceof FormData || body instanceof URLSearchParams ? (body as FormData) : new FormData();
  const finish = (compared: unknown) => digest(fields, [...target, compared]);
  return compared instanceof Promise ? compared.then(finish) : finish(compared);
}

/** Returns what distinguishes a body without fields from another. */
function comparable(body: unknown): unknown {
  if (body instanceof ReadableStream) return [++streams];
  // As for a file in a form.
  if (globalThis.File && body instanceof File) return [body.name, body.size, body.lastModified];
  if (body instanceof Blob) return hashOfBlob(body);
  if (body instanceof FormData) {
    // A blob has no name and time of its own in a form.
    const blobs = [...body.values()].filter((value) => typeof value != "string" && value.name == "blob") as Blob[];
    return blobs.length ? Promise.all(blobs.map(hashOfBlob)) : "";
  }
  if (ArrayBuffer.isView(body)) return [hashOf(new Uint8Array(body.buffer, body.byteOffset, body.byteLength))];
  if (body instanceof ArrayBuffer) return [hashOf(new Uint8Array(body))];
  return body instanceof URLSearchParams ? "" : body;
}

async function hashOfBlob(blob: Blob): Promise<unknown[]> {
  return [blob.type, hashOf(new Uint8Array(await blob.arrayBuffer()))];
}

/** A fast hash of bytes, and their number. */
function hashOf(bytes: Uint8Array): number[] {
  return [bytes.length, bytes.reduce((hash, byte) => Math.imul(hash ^ byte, 0x1000193), 0)];
}
