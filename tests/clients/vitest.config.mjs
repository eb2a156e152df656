import { defineConfig } from "vitest/config"

export default defineConfig({ test: { include: ["*.test.ts"], testTimeout: 60000, fileParallelism: false, hookTimeout: 30000 } })
