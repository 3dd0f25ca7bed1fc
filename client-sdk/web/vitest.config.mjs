import { defineConfig } from "vitest/config";

// Some tests build and pack, which is slow on a busy machine.
export default defineConfig({ test: { include: ["test/**/*.test.ts"], testTimeout: 120_000 } });
