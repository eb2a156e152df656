// `thalweg shape` and the requests of operators (/v1/admin/shapes).

import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { writeFileSync } from "node:fs"
import { connect, createServer } from "node:net"
import { join } from "node:path"
import { after, before, describe, test } from "node:test"
import { eventually, sleep, World } from "./support/world.mjs"

let w
// One test asks through a relay, which has another port.
before(async () => (w = await World.start({ settings: { THALWEG_ALLOW_HOST: "127.0.0.1" } })))
after(() => w?.stop())

/** Runs `thalweg shape …`; `until`: it is ended by SIGTERM when this is true of its output so far. */
function shape(args, { until, env = {}, base = w.base } = {}) {
  const child = spawn(process.env.THALWEG_BIN, ["shape", ...args], { env: { ...process.env, NO_PROXY: "127.0.0.1", THALWEG_SERVER: base, ...env } })
  const run = { out: "", err: "" }
  const look = () => until?.(run.out, run.err) && child.kill("SIGTERM")
  child.stdout.on("data", (data) => ((run.out += data), look()))
  child.stderr.on("data", (data) => ((run.err += data), look()))
  run.lines = () => run.out.split("\n").slice(0, -1).map((line) => JSON.parse(line))
  run.child = child
  run.ended = new Promise((resolve) => child.once("close", (code) => resolve(Object.assign(run, { code }))))
  return run
}
const finished = (args, options) => shape(args, options).ended
const admin = (path = "", options) => w.request({}, { path: `/v1/admin/shapes${path}`, ...options })

describe("create", () => {
  test("makes a shape, and says what it is", async () => {
    const table = await w.table("id int PRIMARY KEY, t text", "(1, 'a')", "(2, 'b')")
    const made = await finished(["create", table])
    assert.equal(made.code, 0, made.err)
    const shape = await w.synced({ table })
    assert.match(made.out, new RegExp(`^handle +${shape.handle}$`, "m"))
    assert.match(made.out, /^messages +2 \(/m)
    assert.match(made.out, /^schema +\{"id":\{"type":"int4","pk_index":0,"not_null":true\},"t":\{"type":"text"\}\}$/m)
    const again = JSON.parse((await finished(["create", table, "--json"])).out)
    assert.deepEqual([again.handle, again.messages, again.complete, Object.keys(again.schema)], [shape.handle, 2, true, ["id", "t"]])
  })

  test("follows all chunks of a large shape", async () => {
    const table = await w.table("id int PRIMARY KEY, t text")
    await w.sql(`INSERT INTO ${table} SELECT n, repeat('x', 100) FROM generate_series(1, 1000) n`)
    const part = JSON.parse((await finished(["create", table, "--json", "--no-wait"])).out)
    assert.ok(part.messages < 1000 && !part.complete)
    const made = JSON.parse((await finished(["create", table, "--json"])).out)
    assert.deepEqual([made.messages, made.complete], [1000, true])
  })

  test("refusals are told with the server's words and an exit code", async () => {
    const none = await finished(["create", "nowhere"])
    assert.equal(none.code, 5)
    assert.match(none.err, /"public"."nowhere" does not exist/)
    const nobody = await finished(["create", "x", "--retry-for", "0s"], { base: "http://127.0.0.1:1" })
    assert.equal(nobody.code, 6)
  })
})

describe("tail", () => {
  test("rows, then changes, as lines of JSON; SIGTERM ends it well", async () => {
    const table = await w.table("id int PRIMARY KEY, t text", "(1, 'a')")
    const run = shape(["tail", table, "--from", "-1"], { until: (out) => out.includes('"delete"') })
    await eventually(() => run.out.includes('"a"'))
    await w.sql(`INSERT INTO ${table} VALUES (2, E'b\\n{"'); UPDATE ${table} SET t = 'c' WHERE id = 1; DELETE FROM ${table} WHERE id = 2`)
    const { code } = await run.ended
    assert.equal(code, 0)
    assert.deepEqual(run.lines().map((line) => [line.headers.operation, line.value]), [
      ["insert", { id: "1", t: "a" }],
      ["insert", { id: "2", t: 'b\n{"' }],
      ["update", { id: "1", t: "c" }],
      ["delete", { id: "2" }],
    ])
  })

  test("begins now, unless told otherwise, and goes on from an offset", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const before = await w.synced({ table })
    const run = shape(["tail", table, "--control"], { until: (out) => out.includes('"2"') })
    await eventually(() => run.out.includes("up-to-date"))
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    await run.ended
    assert.deepEqual(run.lines().filter((line) => line.key).map((line) => line.value.id), ["2"])
    const rest = await finished(["tail", table, "--from", before.offset, "--handle", before.handle], { until: (out) => out.includes('"2"') })
    assert.deepEqual(rest.lines().map((line) => line.value.id), ["2"])
    assert.equal((await finished(["tail", table, "--from", before.offset])).code, 1, "an offset is nothing without its handle")
  })

  test("a shape that is gone is fetched again", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const run = shape(["tail", table, "--from", "-1"], { until: (out) => out.includes('"3"') })
    await eventually(() => run.out.includes('"1"'))
    await sleep(200)
    await w.sql(`TRUNCATE ${table}; INSERT INTO ${table} VALUES (2)`)
    await eventually(() => run.out.includes('"2"'), { what: "the new row" })
    await w.sql(`INSERT INTO ${table} VALUES (3)`)
    assert.equal((await run.ended).code, 0)
    assert.deepEqual(run.lines().map((line) => line.headers.control ?? line.value.id), ["1", "must-refetch", "2", "3"])
  })

  test("goes on when the server was killed, without a row twice or not at all", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    // An address that stays, whatever port the server gets.
    const relay = createServer((from) => {
      const to = connect(Number(new URL(w.base).port), "127.0.0.1")
      from.on("error", () => to.destroy()).pipe(to)
      to.on("error", () => from.destroy()).on("close", () => from.destroy()).pipe(from)
    })
    await new Promise((resolve) => relay.listen(0, "127.0.0.1", resolve))
    w.stops.push(() => relay.close())
    const base = `http://127.0.0.1:${relay.address().port}`
    const run = shape(["tail", table, "--from", "-1"], { until: (out) => out.includes('"3"'), base })
    await eventually(() => run.out.includes('"1"'))
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    await eventually(() => run.out.includes('"2"'))
    await w.kill()
    await w.sql(`INSERT INTO ${table} VALUES (3)`)
    await eventually(() => run.err.includes("trying again"), { what: "the loss is noticed" })
    await w.serve()
    assert.equal((await run.ended).code, 0)
    assert.deepEqual(run.lines().map((line) => line.value.id), ["1", "2", "3"])
  })
})

describe("ls", () => {
  test("lists what there is, by pages and by table", async () => {
    const table = await w.table("id int PRIMARY KEY, t text", "(1, 'a')")
    const all = await w.synced({ table })
    const full = await w.synced({ table, replica: "full", columns: "id" })
    await w.sql(`UPDATE ${table} SET t = 'b'`)
    await w.agrees(all)
    const listed = await finished(["ls", "--json", "--table", `public.${table}`])
    const found = listed.lines()
    assert.deepEqual(found.map((one) => one.handle), [all.handle, full.handle], "in the order in which they were made")
    assert.deepEqual([found[0].phase, found[0].snapshot_rows, found[0].log_entries, found[0].offset], ["live", 1, 1, all.offset])
    assert.ok(found[0].log_bytes > 50 && found[0].snapshot_bytes > 50 && found[0].idle_ms < 60000)
    assert.deepEqual([found[1].replica, found[1].columns, found[1].log_entries], ["full", ["id"], 0])
    const text = await finished(["ls", "--table", `public.${table}`])
    assert.match(text.out, /^HANDLE +TABLE +PHASE/)
    assert.match(text.out, /\[columns id\] \[replica full\]/)
    assert.match(text.err, /2 shapes; changes: active, [\d.]+ \w+ and \d+m?s behind/)

    const first = (await admin("?limit=1")).body
    assert.equal(first.shapes.length, 1)
    const pages = [first]
    while (pages.at(-1).next !== null) pages.push((await admin(`?limit=1&after=${pages.at(-1).next}`)).body)
    const whole = (await admin()).body.shapes.map((one) => one.handle)
    assert.deepEqual(pages.flatMap((page) => page.shapes.map((one) => one.handle)), whole)
    assert.equal(first.source.status, "active")
  })

  test("a waiting client is counted, there and in the metrics", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    const stop = new AbortController()
    const metric = async () => Number(/^thalweg_shape_live_clients (\d+)/m.exec((await w.request({}, { path: "/metrics" })).text)[1])
    await eventually(async () => (await metric()) === 0, { what: "no clients" })
    const waiting = w.request({ table, offset: shape.offset, handle: shape.handle, live: true }, { signal: stop.signal }).catch(() => {})
    await eventually(async () => (await admin(`/${shape.handle}`)).body.waiting === 1, { what: "a waiting client" })
    assert.equal(await metric(), 1)
    stop.abort()
    await waiting
    await eventually(async () => (await metric()) === 0 && (await admin(`/${shape.handle}`)).body.waiting === 0, { what: "it is gone" })
  })
})

describe("drop and explain", () => {
  test("drop makes clients fetch again", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    assert.equal((await finished(["drop", shape.handle])).code, 0)
    assert.equal((await w.request({ table, offset: shape.offset, handle: shape.handle })).status, 409)
    const again = await finished(["drop", shape.handle])
    assert.equal(again.code, 3)
    assert.match(again.err, /no_shape/)
    assert.equal((await finished(["drop", shape.handle, "--if-exists"])).code, 0)
    assert.notEqual((await w.synced({ table })).handle, shape.handle)
  })

  test("explain reads a where clause, or says what is wrong with it", async () => {
    const table = await w.table("id int PRIMARY KEY, t text", "(1, 'a')")
    const said = JSON.parse((await finished(["explain", table, "--where", "t = $1 AND id > 3", "--param", "x", "--json"])).out)
    assert.deepEqual([said.indexed, said.keys, said.why], [true, ['equality on "t"'], null])
    assert.match(said.evaluated, /'x'/)
    const slow = JSON.parse((await finished(["explain", table, "--where", "t = 'x' OR id <> 3", "--json"])).out)
    assert.deepEqual([slow.indexed, slow.keys], [false, []])
    assert.match(slow.why, /<> '3'/)
    const asked = JSON.parse((await finished(["explain", table, "--where", `id IN (SELECT id FROM ${table} WHERE t = 'x') AND id <> 3`, "--json"])).out)
    assert.ok(asked.indexed && /value of "id" IN \(SELECT "id" FROM/.test(asked.keys[0]), JSON.stringify(asked))
    const each = JSON.parse((await finished(["explain", table, "--where", `id NOT IN (SELECT id FROM ${table})`, "--json"])).out)
    assert.ok(!each.indexed && /NOT IN/.test(each.why), JSON.stringify(each))
    const wrong = await finished(["explain", table, "--where", "nothing = 1"])
    assert.equal(wrong.code, 5)
    assert.match(wrong.err, /nothing/)
  })

  test("explain makes no shape, and says what is wrong with a table", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const said = await finished(["explain", table])
    assert.equal(said.code, 0, said.err)
    assert.equal((await admin(`?table=public.${table}`)).body.shapes.length, 0)
    assert.equal((await finished(["explain", "nowhere"])).code, 5)
  })

  test("what operators ask has its refusals", async () => {
    assert.equal((await admin("/1-2")).body.error.code, "no_shape")
    assert.equal((await admin("?limit=x")).body.error.code, "bad_request")
    assert.equal((await admin("/explain")).body.error.code, "bad_request")
    const post = await admin("", { method: "POST" })
    assert.deepEqual([post.status, post.body.error.code, post.header("allow") !== null], [405, "method_not_allowed", true])
    assert.equal(post.header("access-control-allow-origin"), null, "no other page's business")
  })
})

test("with tokens, operators need one, and clients of shapes the secret", async () => {
  const guarded = await World.start({ serve: false, settings: { ELECTRIC_INSECURE: undefined, ELECTRIC_SECRET: "s3cret" } })
  try {
    const tokens = join(guarded.folder, "tokens.toml")
    const secrets = {}
    let file = ""
    for (const [name, scope] of [["boss", "--admin"], ["reader", "--read"]]) {
      const made = spawn(process.env.THALWEG_BIN, ["token", "new", "--name", name, scope, "*"])
      let [out, err] = ["", ""]
      made.stdout.on("data", (data) => (out += data))
      made.stderr.on("data", (data) => (err += data))
      await new Promise((resolve) => made.once("close", resolve))
      file += out
      secrets[name] = /\btw1\.\S+/.exec(err)[0]
    }
    writeFileSync(tokens, file)
    guarded.settings.THALWEG_TOKENS = tokens
    await guarded.serve()
    const table = await guarded.table("id int PRIMARY KEY", "(1)")
    const ask = (headers) => guarded.request({}, { path: "/v1/admin/shapes", headers })
    assert.equal((await ask({})).status, 401)
    assert.equal((await guarded.request({ secret: "s3cret" }, { path: "/v1/admin/shapes" })).status, 401, "the secret of shapes is none of operators")
    assert.equal((await ask({ authorization: `Bearer ${secrets.reader}` })).status, 403)
    assert.equal((await ask({ authorization: `Bearer ${secrets.boss}` })).status, 200)
    const base = guarded.base
    const subset = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ limit: 1, order_by: "id" }) }
    assert.equal((await guarded.request({ table, offset: "now", secret: "s3cret" }, subset)).status, 200, "with a body, too")
    assert.equal((await guarded.request({ table, offset: "now" }, subset)).status, 401)
    assert.equal((await finished(["create", table], { base })).code, 7)
    assert.equal((await finished(["create", table], { base, env: { THALWEG_SHAPE_SECRET: "s3cret" } })).code, 0)
    assert.equal((await finished(["ls"], { base, env: { THALWEG_TOKEN: secrets.reader } })).code, 7)
    const listed = await finished(["ls", "--json"], { base, env: { THALWEG_TOKEN: secrets.boss } })
    assert.deepEqual(listed.lines().map((one) => one.table), [`public.${table}`])
  } finally {
    await guarded.stop()
  }
})
