// Secrets, admission, and how the server starts and stops.

import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { eventually, sleep, World } from "./support/world.mjs"

async function withWorld(options, body) {
  const w = await World.start(options)
  try {
    await body(w)
  } finally {
    await w.stop()
  }
}

describe("the secret", () => {
  test("guards shapes on every spelling of their path, and nothing else", () =>
    withWorld({ settings: { ELECTRIC_INSECURE: undefined, ELECTRIC_SECRET: "s3cr3t/+ &x" } }, async (w) => {
      const secret = "s3cr3t/+ &x"
      const table = await w.table("id int PRIMARY KEY", "(1)")
      const ask = async (params, options) => (await w.request(params, options)).status
      assert.equal(await ask({}, { path: "/" }), 200)
      assert.equal(await ask({}, { path: "/nonexistent" }), 404)
      assert.equal(await ask({}, { path: "/v1/health" }), 200)
      assert.equal(await ask({}, { method: "OPTIONS" }), 204)
      for (const path of ["/v1/shape", "/v1/shape/", "/v1//shape", "/v1/shape//", "//v1/shape", "/v1/%73hape", "/%761/shape"])
        for (const method of ["GET", "DELETE", "POST", "HEAD"]) {
          const answer = await w.request({ table, offset: "-1" }, { path, method })
          assert.equal(answer.status, 401, `${method} ${path}`)
          if (method !== "HEAD") assert.deepEqual(answer.body, { message: "Unauthorized - Invalid API secret" })
          assert.equal(answer.header("access-control-allow-origin"), "*", "a browser may see the refusal")
          assert.equal(await ask({ table, offset: "-1", secret: "wrong" }, { path, method }), 401)
          assert.equal(await ask({ table, offset: "-1", secret: secret + "x" }, { path, method }), 401)
          assert.equal(await ask({ secret }, { path, method }), 400, `${method} ${path} with the secret`)
        }
      assert.equal(await ask({ table, offset: "-1", secret }), 200)
      assert.equal(await ask({ table, offset: "-1", api_secret: secret }), 200)
      assert.equal(await ask({ table, offset: "-1", secret: "wrong", api_secret: secret }), 401, "the new name goes first")
      const handle = async (params) => (await w.request({ table, offset: "-1", ...params })).header("electric-handle")
      assert.equal(await handle({ secret }), await handle({ api_secret: secret }), "it is no part of the shape")
    }))

  test("must be set, or be waived", async () => {
    const w = await World.start({ settings: { ELECTRIC_INSECURE: undefined }, serve: false })
    try {
      await assert.rejects(w.serve(), (error) => error.exit !== undefined && error.exit !== 0)
      assert.match(w.log(), /ELECTRIC_SECRET|secret/i)
    } finally {
      await w.stop()
    }
  })
})

describe("DELETE", () => {
  test("is not for production", () =>
    withWorld({ settings: { ELECTRIC_ENABLE_INTEGRATION_TESTING: undefined } }, async (w) => {
      const table = await w.table("id int PRIMARY KEY")
      const answer = await w.request({ table }, { method: "DELETE" })
      assert.equal(answer.status, 405)
      assert.deepEqual(answer.body, { message: "DELETE not allowed" })
    }))
})

describe("admission", () => {
  test("beyond the limit there is a 503 that says when to come again", () =>
    withWorld({ settings: { ELECTRIC_MAX_CONCURRENT_REQUESTS: '{"initial": 2, "existing": 2}', ELECTRIC_LONG_POLL_TIMEOUT: "5000" } }, async (w) => {
      const table = await w.table("id int PRIMARY KEY", "(1)")
      const shape = await w.synced({ table })
      const params = { table, handle: shape.handle, offset: shape.offset, live: "true" }
      const waiting = [w.request(params), w.request(params)]
      await sleep(500)
      const third = await w.request(params)
      assert.equal(third.status, 503)
      assert.match(third.header("content-type"), /^application\/json/)
      assert.equal(third.body.code, "concurrent_request_limit_exceeded")
      assert.equal(third.body.message, "Concurrent existing request limit exceeded (limit: 2), please retry")
      const after = Number(third.header("retry-after"))
      assert.ok(after >= 5 && after <= 10, `retry-after ${third.header("retry-after")}`)
      assert.equal(third.header("electric-internal-known-error"), "true")
      assert.equal(third.header("cache-control"), "no-store")
      // New clients have places of their own.
      assert.equal((await w.request({ table, offset: "-1", where: "id = 1" })).status, 200)
      await w.sql(`INSERT INTO ${table} VALUES (2)`)
      for (const answer of await Promise.all(waiting)) assert.equal(answer.status, 200)
      assert.equal((await w.request({ table, handle: shape.handle, offset: shape.offset })).status, 200, "places are given back")
    }))

  test("places are given back whatever becomes of a request", () =>
    withWorld({ settings: { ELECTRIC_MAX_CONCURRENT_REQUESTS: '{"initial": 2, "existing": 2}', ELECTRIC_LONG_POLL_TIMEOUT: "5000" } }, async (w) => {
      const table = await w.table("id int PRIMARY KEY", "(1)")
      const shape = await w.synced({ table })
      for (let i = 0; i < 10; i++) {
        await w.request({ table, offset: "-1", where: "nope" })
        await w.request({ offset: "-1" })
        await w.request({ table, handle: "nope", offset: "0_0" })
        const abort = new AbortController()
        const waiting = w.request({ table, handle: shape.handle, offset: shape.offset, live: "true" }, { signal: abort.signal }).catch(() => {})
        await sleep(20)
        abort.abort()
        await waiting
      }
      await eventually(async () => (await w.request({ table, handle: shape.handle, offset: shape.offset })).status === 200)
      assert.equal((await w.request({ table, offset: "-1", where: "id = 7" })).status, 200)
    }))
})

describe("without a database", () => {
  test("the server starts, says so, and serves when the database comes", async () => {
    const w = await World.start({ serve: false })
    try {
      const url = w.url
      w.url = url.replace(/:\d+\//, ":1/")
      await w.serve({ ready: false })
      await sleep(500)
      const health = await w.request({}, { path: "/v1/health" })
      assert.equal(health.status, 202)
      assert.ok(["starting", "waiting"].includes(health.body.status), health.text)
      const shape = await w.request({ table: "x", offset: "-1" })
      assert.equal(shape.status, 503)
      assert.ok(Number(shape.header("retry-after")) > 0)
      w.url = url
    } finally {
      await w.stop()
    }
  })

  test("a wrong password or wal_level is told in the log", async () => {
    const w = await World.start({ serve: false })
    try {
      const url = w.url
      w.url = url.replace("postgres@", "nobody_of_that_name@")
      await w.serve({ ready: false }).catch(() => {})
      await eventually(() => /nobody_of_that_name/.test(w.log()), { what: "the reason in the log" })
      w.url = url
    } finally {
      await w.stop()
    }
  })
})

describe("privileges", () => {
  test("a role that may replicate and read, without owning tables, gets a clear answer", async () => {
    const w = await World.start({ serve: false })
    const role = w.name("limited")
    try {
      const table = await w.table("id int PRIMARY KEY", "(1)")
      await w.sql(`CREATE ROLE ${role} LOGIN REPLICATION; GRANT CONNECT, CREATE ON DATABASE ${w.database} TO ${role}; GRANT SELECT ON ALL TABLES IN SCHEMA public TO ${role}`)
      const url = w.url
      w.url = url.replace("postgres@", `${role}@`)
      await w.serve()
      const answer = await w.request({ table, offset: "-1" })
      assert.ok(answer.status === 503, `${answer.status} ${answer.text}`)
      assert.ok(Number(answer.header("retry-after")) > 0)
      assert.match(answer.text, /must be owner of|lacks privileges/)
      w.url = url
      await w.kill()
    } finally {
      await w.sql(`DROP OWNED BY ${role} CASCADE`).catch(() => {})
      await w.stop()
    }
  })

  test("tables that somebody else has published are served in manual mode", async () => {
    const w = await World.start({ serve: false, settings: { ELECTRIC_MANUAL_TABLE_PUBLISHING: "true" } })
    try {
      const [good, missing, half] = [await w.table("id int PRIMARY KEY", "(1)"), await w.table("id int PRIMARY KEY"), await w.table("id int PRIMARY KEY")]
      await w.sql(`CREATE PUBLICATION thalweg_publication_${w.database} FOR TABLE ${good}, ${half}`)
      await w.sql(`ALTER TABLE ${good} REPLICA IDENTITY FULL`)
      await w.serve()
      const shape = await w.synced({ table: good })
      await w.sql(`INSERT INTO ${good} VALUES (2)`)
      await w.agrees(shape)
      for (const [table, reason] of [[missing, /is missing from the publication/], [half, /REPLICA IDENTITY|replica identity/]]) {
        const answer = await w.request({ table, offset: "-1" })
        assert.equal(answer.status, 503, answer.text)
        assert.match(answer.text, reason)
        assert.ok(Number(answer.header("retry-after")) > 0)
      }
    } finally {
      await w.stop()
    }
  })
})
