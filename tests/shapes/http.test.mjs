// The HTTP around it: methods, headers, caching, refusals, bodies.

import assert from "node:assert/strict"
import http from "node:http"
import { after, before, describe, test } from "node:test"
import { World } from "./support/world.mjs"

let w
before(async () => (w = await World.start({ settings: { THALWEG_ALLOW_ORIGIN: "https://app.example", ELECTRIC_CACHE_MAX_AGE: "62", ELECTRIC_CACHE_STALE_AGE: "312" } })))
after(() => w?.stop())

const list = (header) => (header ?? "").split(",").map((item) => item.trim()).filter(Boolean).sort()
const SHAPE_METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "POST"]
const MUST_REFETCH = [{ headers: { control: "must-refetch" } }]

describe("endpoints", () => {
  test("/ is there", async () => {
    const answer = await w.request({}, { path: "/" })
    assert.equal(answer.status, 200)
  })

  test("health says active and is never kept", async () => {
    const answer = await w.request({}, { path: "/v1/health" })
    assert.equal(answer.status, 200)
    assert.deepEqual(answer.body, { status: "active" })
    assert.equal(answer.header("cache-control"), "no-cache, no-store, must-revalidate")
    assert.match(answer.header("content-type"), /^application\/json/)
  })

  test("anything else is not found", async () => {
    const answer = await w.request({}, { path: "/invalidpath" })
    assert.equal(answer.status, 404)
  })

  test("every way of writing the path is the same path", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    for (const path of ["/v1/shape/", "/v1//shape", "/v1/shape//", "/v1/%73hape"]) {
      const answer = await w.request({ table, offset: "-1" }, { path })
      assert.equal(answer.status, 200, path)
      assert.equal(answer.body[0].value.id, "1", path)
    }
  })

  test("every answer names the server and the request", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const answers = [
      await w.request({ table, offset: "-1" }),
      await w.request({ offset: "-1" }),
      await w.request({}, { path: "/v1/health" }),
      await w.request({ table, offset: "0_0", handle: "nope" }),
    ]
    for (const answer of answers) {
      assert.match(answer.header("electric-server") ?? "", /^\S+\/\S+$/)
      assert.ok(answer.header("x-request-id"))
    }
    assert.equal(new Set(answers.map((answer) => answer.header("x-request-id"))).size, answers.length)
  })
})

describe("browsers", () => {
  test("may read everything that matters, from anywhere", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const expose = "electric-cursor,electric-handle,electric-has-data,electric-offset,electric-schema,electric-up-to-date,electric-internal-known-error,retry-after"
    for (const params of [{ table, offset: "-1" }, { offset: "-1" }, { table, offset: "0_0", handle: "nope" }]) {
      const answer = await w.request(params)
      assert.equal(answer.header("access-control-allow-origin"), "*")
      assert.deepEqual(list(answer.header("access-control-expose-headers")), list(expose))
      assert.deepEqual(list(answer.header("access-control-allow-methods")), SHAPE_METHODS)
      const other = await w.request(params, { headers: { origin: "https://app.example" } })
      assert.equal(other.header("access-control-allow-origin"), "*", "caches give it to pages of other origins too")
    }
  })

  test("may ask first", async () => {
    for (const path of ["/v1/shape", "/v1/%73hape"]) {
      const answer = await w.request({}, { path, method: "OPTIONS", headers: { "access-control-request-headers": "If-None-Match, traceparent", "access-control-request-method": "GET" } })
      assert.equal(answer.status, 204)
      assert.equal(answer.text, "")
      assert.equal(answer.header("access-control-max-age"), "86400")
      assert.deepEqual(list(answer.header("access-control-allow-methods")), SHAPE_METHODS)
      assert.deepEqual(list(answer.header("access-control-allow-headers")).map((name) => name.toLowerCase()), ["if-none-match", "traceparent"])
    }
  })
})

describe("HEAD", () => {
  test("has the headers of GET and no body", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const get = await w.request({ table, offset: "-1" })
    const head = await w.request({ table, offset: "-1" }, { method: "HEAD" })
    assert.equal(head.status, 200)
    assert.equal(head.text, "")
    for (const name of ["electric-handle", "electric-offset", "electric-schema", "etag", "cache-control", "content-type", "electric-has-data"])
      assert.equal(head.header(name), get.header(name), name)
  })
})

describe("caching", () => {
  test("the beginning is kept long, the rest as set, live for seconds", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const first = await w.request({ table, offset: "-1" })
    assert.equal(first.header("cache-control"), "public, max-age=604800, s-maxage=3600, stale-while-revalidate=2629746")
    const handle = first.header("electric-handle")
    assert.equal(first.header("etag"), `"${handle}:-1:0_0"`)
    const next = await w.request({ table, offset: "0_0", handle })
    assert.equal(next.header("cache-control"), "public, max-age=62, stale-while-revalidate=312")
    const now = await w.request({ table, offset: "now" })
    assert.equal(now.status, 200)
    const live = w.request({ table, offset: next.header("electric-offset"), handle, live: "true" })
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    assert.equal((await live).header("cache-control"), "public, max-age=5, stale-while-revalidate=5")
  })

  test("refusals are not kept", async () => {
    const answer = await w.request({ offset: "-1" })
    assert.equal(answer.header("cache-control"), "no-store")
    assert.equal(answer.header("surrogate-control"), "no-store")
  })

  test("a redirect to another handle is kept for a minute", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const answer = await w.request({ table, offset: "0_0", handle: "nope" })
    assert.equal(answer.header("cache-control"), "public, max-age=60, must-revalidate")
  })

  test("what has not changed is not sent again", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (2)`))
    for (const offset of ["-1", "0_0"]) {
      const params = { table, offset, handle: offset === "-1" ? undefined : shape.handle }
      const etag = (await w.request(params)).header("etag")
      for (const value of [etag, `"x", ${etag}`, etag.replaceAll('"', ""), `"a",${etag},"b"`]) {
        const again = await w.request(params, { headers: { "if-none-match": value } })
        assert.equal(again.status, 304, `${offset} ${value}`)
        assert.equal(again.text, "")
        assert.ok(again.header("cache-control").startsWith("public, max-age="))
        assert.equal(again.header("electric-handle"), shape.handle)
      }
      assert.equal((await w.request(params, { headers: { "if-none-match": '"other"' } })).status, 200)
    }
    const params = { table, offset: "0_0", handle: shape.handle }
    const etag = (await w.request(params)).header("etag")
    await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (3)`))
    assert.equal((await w.request(params, { headers: { "if-none-match": etag } })).status, 200, "it has changed")
  })

  test("tags of answers from now on never match again; those of a log's end do", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = await w.synced({ table })
    const now = { table, offset: "now" }
    const first = await w.request(now)
    const second = await w.request(now, { headers: { "if-none-match": first.header("etag") } })
    assert.equal(second.status, 200)
    assert.notEqual(second.header("etag"), first.header("etag"))
    const end = { table, offset: shape.offset, handle: shape.handle }
    const etag = (await w.request(end)).header("etag")
    assert.equal(etag, `"${shape.handle}:0_inf:0_inf"`)
    assert.equal((await w.request(end, { headers: { "if-none-match": etag } })).status, 304)
  })
})

describe("handles", () => {
  test("an unknown one leads to the shape of that definition", async () => {
    const table = await w.table("id int PRIMARY KEY, n int")
    const known = await w.request({ table, offset: "-1", where: "n = 1" })
    const answer = await w.request({ table, offset: "0_0", where: "n = 1", handle: "nope" })
    assert.equal(answer.status, 409)
    assert.deepEqual(answer.body, MUST_REFETCH)
    assert.equal(answer.header("electric-handle"), known.header("electric-handle"))
  })

  test("an unknown one with a new definition makes the shape", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const answer = await w.request({ table, offset: "0_0", handle: "nope", unrelated: "foo" })
    assert.equal(answer.status, 409)
    const handle = answer.header("electric-handle")
    assert.ok(handle)
    assert.equal((await w.request({ table, offset: "-1" })).header("electric-handle"), handle)
  })

  test("one of another definition is not served", async () => {
    const table = await w.table("id int PRIMARY KEY, n int")
    const other = (await w.request({ table, offset: "-1", where: "n = 1" })).header("electric-handle")
    const answer = await w.request({ table, offset: "0_0", handle: other })
    assert.equal(answer.status, 409)
    assert.notEqual(answer.header("electric-handle"), other)
  })

  test("odd ones are only strings", async () => {
    const table = await w.table("id int PRIMARY KEY")
    for (const handle of ["../../etc/passwd", "%00", "a".repeat(3000), "🎈", "' OR 1=1 --", "0-0"]) {
      const answer = await w.request({ table, offset: "0_0", handle })
      assert.ok([409, 400, 414].includes(answer.status), `${handle.slice(0, 20)}: ${answer.status}`)
    }
    assert.equal((await w.request({ table, offset: "-1" })).status, 200)
  })
})

describe("refusals", () => {
  test("of offsets", async () => {
    const table = await w.table("id int PRIMARY KEY")
    await w.refuses({ table }, { offset: ["can't be blank"] })
    for (const offset of ["invalid", "0_-1", "-2", "1", "_", "0_", "_0", "0_0_0", "inf", "0x1_0", "99999999999999999999999999_0"])
      await w.refuses({ table, offset }, { offset: ["has invalid format"] })
    await w.refuses({ table, offset: "0_0" }, { handle: ["can't be blank when offset != -1"] })
    await w.refuses({ table, offset: "-1", live: "true" }, { live: ["can't be true when offset == -1"] })
    await w.refuses({ table, offset: "now", live: "true" }, { live: ["can't be true when offset is 'now'"] })
  })

  test("of words that are not in the list", async () => {
    const table = await w.table("id int PRIMARY KEY")
    await w.refuses({ table, offset: "-1", replica: "half" }, { replica: ["is invalid"] })
    await w.refuses({ table, offset: "-1", log: "some" }, { log: ["is invalid"] })
  })

  test("say nothing of data", async () => {
    const answer = await w.request({ table: ".x", offset: "-1" })
    assert.equal(answer.header("electric-has-data"), null)
    assert.equal(answer.header("electric-handle"), null)
  })

  test("unknown parameters are no reason", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const plain = (await w.request({ table, offset: "-1" })).header("electric-handle")
    const answer = await w.request({ table, offset: "-1", foo: "bar", "cache-buster": "x", expired_handle: plain, subset: {}, "a[b][c]": "d" })
    assert.equal(answer.status, 200)
    assert.equal(answer.header("electric-handle"), plain)
  })
})

describe("POST", () => {
  const post = (params, body, headers = { "content-type": "application/json" }) => w.request(params, { method: "POST", body: typeof body === "string" ? body : JSON.stringify(body), headers })

  test("is GET with a body that is laid over the parameters", async () => {
    const table = await w.table("id int PRIMARY KEY, n int", "(1, 1)", "(2, 2)")
    const get = await w.request({ table, offset: "-1", where: "n = 2", columns: "id" })
    const all = await post({ table: "other", offset: "-1", where: "n = 2" }, { table, columns: "id" })
    assert.equal(all.status, 200)
    assert.equal(all.header("electric-handle"), get.header("electric-handle"))
    assert.deepEqual(all.body[0].value, { id: "2" })
    assert.equal(all.header("cache-control"), "no-cache")
    const empty = await w.request({ table, offset: "-1" }, { method: "POST" })
    assert.equal(empty.status, 200)
  })

  test("refuses what is no JSON object, and what is too large", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const bad = await post({ table, offset: "-1" }, "not valid json")
    assert.equal(bad.status, 400)
    assert.equal(bad.body.error, "Invalid JSON in request body")
    const array = await post({ table, offset: "-1" }, ["a"])
    assert.equal(array.status, 400)
    assert.equal(array.body.error, "Request body must be a JSON object")
    const large = await post({ table, offset: "-1" }, JSON.stringify({ where: `'${"x".repeat(9 << 20)}' = ''` })).catch((error) => ({ status: 413, body: { error: "Request body too large" }, error }))
    assert.equal(large.status, 413)
    assert.equal(large.body.error, "Request body too large")
  })

  test("a body may be malformed in every way", async () => {
    const table = await w.table("id int PRIMARY KEY")
    for (const body of ["", "null", "1", '"x"', "[]", "{", '{"offset":1}', '{"offset":null}', '{"table":["a"],"offset":"-1"}', '{"where":{"a":1}}', '{"params":"x"}', '{"subset":1}', '{"subset":{"limit":"x"}}', `{"a":${"[".repeat(5000)}${"]".repeat(5000)}}`, '{"columns":7}', "\u0000"]) {
      const answer = await post({ table, offset: "-1" }, body)
      assert.ok(answer.status < 500, `${body.slice(0, 30)}: ${answer.status} ${answer.text.slice(0, 200)}`)
    }
    assert.equal((await w.request({ table, offset: "-1" })).status, 200)
  })
})

describe("DELETE", () => {
  test("by handle, by definition, by both", async () => {
    const table = await w.table("id int PRIMARY KEY, n int", "(1, 1)")
    const definition = { table, where: "n = $1", params: { 1: "1" }, columns: "id,n" }
    const make = async () => (await w.request({ ...definition, offset: "-1" })).header("electric-handle")
    let handle = await make()
    for (const by of [() => ({ handle }), () => definition, () => ({ ...definition, handle })]) {
      const answer = await w.request(by(), { method: "DELETE" })
      assert.equal(answer.status, 202)
      assert.equal(answer.text, "")
      assert.equal(answer.header("cache-control"), "no-cache")
      const old = handle
      handle = await make()
      assert.notEqual(handle, old)
      assert.equal((await w.request({ ...definition, offset: "0_0", handle: old })).status, 409)
    }
  })

  test("the next shape is read anew", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    await w.sql(`DELETE FROM ${table}; INSERT INTO ${table} VALUES (2)`)
    await w.request({ table }, { method: "DELETE" })
    const next = await w.synced({ table })
    assert.notEqual(next.handle, shape.handle)
    assert.deepEqual(next.column("id"), ["2"])
    const [change] = await next.changes(() => w.sql(`INSERT INTO ${table} VALUES (3)`))
    assert.equal(change.value.id, "3")
  })

  test("is refused for what is not there or makes no sense", async () => {
    const table = await w.table("id int PRIMARY KEY, n int")
    const refused = async (params, errors) => {
      const answer = await w.request(params, { method: "DELETE" })
      assert.equal(answer.status, 400)
      assert.deepEqual(answer.body, { message: "Invalid request", errors })
      assert.equal(answer.header("cache-control"), "no-cache")
    }
    await refused({}, { handle: ["can't be blank when shape definition is missing"] })
    await refused({ table: ".invalid" }, { table: ["Invalid zero-length delimited identifier"] })
    await refused({ table, live: "banana" }, { live: ["is invalid"] })
    assert.equal((await w.request({ table }, { method: "DELETE" })).status, 404)
    assert.equal((await w.request({ handle: "nope" }, { method: "DELETE" })).status, 404)
    const other = (await w.request({ table, offset: "-1", where: "n = 1" })).header("electric-handle")
    await w.request({ table, offset: "-1" })
    assert.equal((await w.request({ table, handle: other }, { method: "DELETE" })).status, 400, "the handle is of another definition")
  })
})

describe("connections", () => {
  test("one connection serves many requests, also pipelined ones after refusals", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })
    const get = (params) =>
      new Promise((resolve, reject) => {
        http.get(w.at(params), { agent }, (response) => {
          let text = ""
          const port = response.socket.localPort
          response.on("data", (piece) => (text += piece)).on("end", () => resolve({ status: response.statusCode, text, port }))
        }).on("error", reject)
      })
    const answers = []
    for (const params of [{ table, offset: "-1" }, { offset: "-1" }, { table, offset: "0_0", handle: "nope" }, { table, offset: "-1" }]) answers.push(await get(params))
    agent.destroy()
    assert.deepEqual(answers.map((answer) => answer.status), [200, 400, 409, 200])
    assert.equal(new Set(answers.map((answer) => answer.port)).size, 1)
  })

  test("an answer may be compressed", async () => {
    const table = await w.table("id int PRIMARY KEY, t text")
    await w.sql(`INSERT INTO ${table} SELECT i, repeat('x', 50) FROM generate_series(1, 80) i`)
    const plain = await w.request({ table, offset: "-1" }, { headers: { "accept-encoding": "identity" } })
    const packed = await w.request({ table, offset: "-1" }, { headers: { "accept-encoding": "gzip" } })
    assert.deepEqual(packed.body, plain.body)
  })
})
