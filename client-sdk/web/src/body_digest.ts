// Digests of the body of a request, for the adapters.

import { digest } from "./digest.js";

let streams = 0;

/** The size in bytes up to which a file is compared by its bytes: to read a larger one would delay its upload. */
const LARGE = 16 << 20;

/**
 * Returns a digest of a body and of `target`: by its fields, its text or its bytes. A large file counts by its name, size and time, and a stream
 * is never the same. Only the bytes of files and blobs are awaited.
 */
export function digestOf(body: unknown, target: unknown[]): number | Promise<number> {
  const fields = new FormData();
  const compared: unknown[] = [];
  if (body instanceof FormData || body instanceof URLSearchParams) {
    for (const [name, value] of body as FormData) {
      if (typeof value == "string") fields.append(name, value);
      else compared.push(name, comparable(value));
    }
  } else compared.push(comparable(body));
  const finish = (compared: unknown[]) => digest(fields, [...target, ...compared]);
  return compared.some((part) => part instanceof Promise) ? Promise.all(compared).then(finish) : finish(compared);
}

/** Returns what distinguishes a body without fields, or a part, from another. */
function comparable(body: unknown): unknown {
  if (body instanceof ReadableStream) return [++streams];
  if (body instanceof Blob) return comparableBlob(body);
  if (ArrayBuffer.isView(body)) return [hashOf(new Uint8Array(body.buffer, body.byteOffset, body.byteLength))];
  if (body instanceof ArrayBuffer) return [hashOf(new Uint8Array(body))];
  return body;
}

/** A file that a script made, or a blob in a form, has the time at which that happened. It does not count where the bytes do. */
function comparableBlob(blob: Blob): unknown[] | Promise<unknown[]> {
  const { name, type, size, lastModified } = blob as File;
  // The empty field for a file, which most forms send, is not awaited.
  if (!size) return [name, type];
  // A form names each blob like this.
  if (name && name != "blob" && size > LARGE) return [name, size, lastModified];
  return blob.arrayBuffer().then((bytes) => [name, type, hashOf(new Uint8Array(bytes))]);
}

/** A fast hash of bytes, and their number. */
function hashOf(bytes: Uint8Array): number[] {
  return [bytes.length, bytes.reduce((hash, byte) => Math.imul(hash ^ byte, 0x1000193), 0)];
}
