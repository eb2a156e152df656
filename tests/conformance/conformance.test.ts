// The published Durable Streams suite, against the server at DS_BASE_URL.
// (Not BASE_URL: vite overwrites that one.)
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({
  baseUrl: process.env.DS_BASE_URL!,
  longPollTimeoutMs: 500, // the server's own long-poll timeout
  subscriptions: process.env.DS_SUBSCRIPTIONS === "1",
})
