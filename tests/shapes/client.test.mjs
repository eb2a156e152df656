// The official TypeScript client, unchanged, in Node.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { World, eventually, sleep } from "./support/world.mjs"

// Its server-sent events want a document; it needs nothing from it.
globalThis.window ??= globalThis
globalThis.document ??= { hidden: false, addEventListener() {}, removeEventListener() {} }
const { FetchError, isChangeMessage, isControlMessage, Shape, ShapeStream } = await import("@electric-sql/client")

let w
before(async () => (w = await World.start()))
after(() => w?.stop())

function client(t, params, options = {}) {
  const abort = new AbortController()
  t.after(() => abort.abort())
  const stream = new ShapeStream({ url: `${w.base}/v1/shape`, params, signal: abort.signal, ...options })
  stream.subscribe(() => {}, () => {})
  return { stream, shape: new Shape(stream), abort }
}
const sorted = (rows) => [...rows].sort((a, b) => Number(a.id) - Number(b.id))

for (const liveSse of [false, true]) {
  describe(liveSse ? "by server-sent events" : "by long polls", () => {
    test("an empty table", async (t) => {
      const table = await w.table("id int PRIMARY KEY")
      const { shape, stream } = client(t, { table }, { liveSse })
      assert.deepEqual(await shape.rows, [])
      assert.ok(stream.shapeHandle)
      assert.ok(stream.isUpToDate)
    })

    test("rows are parsed by their types, first and later", async (t) => {
      const table = await w.table("id int PRIMARY KEY, big int8, f float8, b bool, j jsonb, ints int8[], t text", "(1, 9223372036854775807, 4.5, true, '{\"a\":1}', '{1,2}', NULL)")
      const { shape } = client(t, { table }, { liveSse })
      assert.deepEqual(await shape.rows, [{ id: 1, big: 9223372036854775807n, f: 4.5, b: true, j: { a: 1 }, ints: [1n, 2n], t: null }])
      await w.sql(`UPDATE ${table} SET b = false, f = 'Infinity', t = 'x', j = '[]'`)
      await eventually(() => shape.currentRows[0].t === "x")
      assert.deepEqual(shape.currentRows, [{ id: 1, big: 9223372036854775807n, f: Infinity, b: false, j: [], ints: [1n, 2n], t: "x" }])
    })

    test("changes arrive, in order, with what a table holds in the end", async (t) => {
      const table = await w.table("id int PRIMARY KEY, n int")
      const { shape, stream } = client(t, { table }, { liveSse })
      await shape.rows
      const operations = []
      stream.subscribe((messages) => operations.push(...messages.filter(isChangeMessage).map((m) => `${m.headers.operation} ${m.value.id}`)))
      await w.sql(`INSERT INTO ${table} VALUES (1, 1)`)
      await eventually(() => shape.currentRows.length === 1)
      await w.sql(`UPDATE ${table} SET n = 2`)
      await w.sql(`INSERT INTO ${table} VALUES (2, 2)`)
      await w.sql(`DELETE FROM ${table} WHERE id = 1`)
      await eventually(() => shape.currentRows.length === 1 && shape.currentRows[0].id === 2)
      assert.deepEqual(operations, ["insert 1", "update 1", "insert 2", "delete 1"])
    })

    test("where, columns and replica", async (t) => {
      const table = await w.table(`id int PRIMARY KEY, t text, "has,comma" text`, "(1, 'foo', 'c')", "(2, 'bar', 'd')")
      const { shape } = client(t, { table, where: "t LIKE $1", params: ["foo%"], columns: ["id", "has,comma"], replica: "full" }, { liveSse })
      assert.deepEqual(await shape.rows, [{ id: 1, "has,comma": "c" }])
      await w.sql(`UPDATE ${table} SET t = 'foo2' WHERE id = 2`)
      await eventually(() => shape.currentRows.length === 2)
      assert.deepEqual(sorted(shape.currentRows)[1], { id: 2, "has,comma": "d" })
    })

    test("a shape that ends is read anew without a word", async (t) => {
      const table = await w.table("id int PRIMARY KEY", "(1)")
      const { shape, stream } = client(t, { table }, { liveSse })
      await shape.rows
      const handle = stream.shapeHandle
      await w.sql(`BEGIN; TRUNCATE ${table}; INSERT INTO ${table} VALUES (2), (3); COMMIT`)
      await eventually(() => JSON.stringify(sorted(shape.currentRows)) === '[{"id":2},{"id":3}]')
      assert.notEqual(stream.shapeHandle, handle)
      await w.sql(`INSERT INTO ${table} VALUES (4)`)
      await eventually(() => shape.currentRows.length === 3)
    })

    test("one can go offline and catch up", async (t) => {
      const table = await w.table("id int PRIMARY KEY", "(1)")
      const first = client(t, { table }, { liveSse })
      await first.shape.rows
      const { lastOffset: offset, shapeHandle: handle } = first.stream
      first.abort.abort()
      for (let i = 2; i <= 10; i++) await w.sql(`INSERT INTO ${table} VALUES (${i})`)
      const seen = []
      const abort = new AbortController()
      t.after(() => abort.abort())
      const second = new ShapeStream({ url: `${w.base}/v1/shape`, params: { table }, offset, handle, signal: abort.signal, liveSse })
      second.subscribe((messages) => seen.push(...messages.filter(isChangeMessage).map((m) => m.value.id)))
      await eventually(() => seen.length === 9)
      assert.deepEqual(seen, [2, 3, 4, 5, 6, 7, 8, 9, 10])
    })

    test("an invalid request is an error with the server's words", async (t) => {
      const table = await w.table("id int PRIMARY KEY")
      const abort = new AbortController()
      t.after(() => abort.abort())
      let error
      const stream = new ShapeStream({ url: `${w.base}/v1/shape`, params: { table, where: "1 x 1" }, signal: abort.signal, liveSse, onError: (e) => void (error = e) })
      stream.subscribe(() => {}, () => {})
      await eventually(() => error)
      assert.ok(error instanceof FetchError)
      assert.equal(error.status, 400)
      assert.deepEqual(error.json, { message: "Invalid request", errors: { where: ['At location 17: syntax error at or near "x"'] } })
    })

    test("many clients of one table", async (t) => {
      const table = await w.table("id int PRIMARY KEY", "(1)")
      const clients = Array.from({ length: 10 }, () => client(t, { table }, { liveSse }))
      await Promise.all(clients.map(({ shape }) => shape.rows))
      await w.sql(`INSERT INTO ${table} VALUES (2)`)
      await eventually(() => clients.every(({ shape }) => shape.currentRows.length === 2))
    })
  })
}

describe("otherwise", () => {
  test("the server may be killed and come back", async (t) => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const { shape } = client(t, { table }, { fetchClient: (url, init) => fetch(String(url).replace(/^http:\/\/[^/]+/, w.base), init), backoffOptions: { initialDelay: 50, maxDelay: 200, multiplier: 1.5 } })
    await shape.rows
    await w.restart()
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    await eventually(() => shape.currentRows.length === 2, { within: 30000 })
  })

  test("a stream that does not subscribe ends by itself", async (t) => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const { stream, shape } = client(t, { table }, { subscribe: false })
    assert.equal((await shape.rows).length, 1)
    await sleep(100)
    assert.equal(stream.isConnected(), false)
  })

  for (const subsetMethod of ["GET", "POST"])
    test(`subsets by ${subsetMethod} are laid over the changes`, async (t) => {
      const table = await w.table("id int PRIMARY KEY, n int", "(1, 10)", "(2, 20)", "(3, 30)")
      const { stream, shape } = client(t, { table }, { log: "changes_only", subsetMethod })
      await eventually(() => stream.isUpToDate)
      assert.equal(shape.currentRows.length, 0)
      const { data, metadata } = await stream.requestSnapshot({ where: "n > $1", params: { 1: "15" }, orderBy: "id ASC", limit: 10 })
      assert.equal(data.length, 2)
      assert.match(metadata.xmin, /^\d+$/)
      await eventually(() => shape.currentRows.length === 2)
      await w.sql(`UPDATE ${table} SET n = 21 WHERE id = 2`)
      await eventually(() => shape.currentRows.find((row) => row.id === 2)?.n === 21)
      await w.sql(`INSERT INTO ${table} VALUES (4, 40)`)
      await eventually(() => shape.currentRows.length === 3)
    })

  test("from now on", async (t) => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const { stream, shape } = client(t, { table }, { offset: "now" })
    await eventually(() => stream.isUpToDate)
    assert.equal(shape.currentRows.length, 0)
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    await eventually(() => shape.currentRows.length === 1)
    assert.deepEqual(shape.currentRows, [{ id: 2 }])
  })

  test("a large shape in many chunks", async (t) => {
    const table = await w.table("id int PRIMARY KEY, t text")
    await w.sql(`INSERT INTO ${table} SELECT i, repeat(md5(i::text), 20) FROM generate_series(1, 300) i`)
    const { shape } = client(t, { table })
    assert.equal((await shape.rows).length, 300)
    await w.sql(`UPDATE ${table} SET t = repeat(md5(t), 20)`)
    await eventually(() => shape.currentRows.every((row) => row.t.length === 640) && shape.isUpToDate)
    const wanted = (await w.sql(`SELECT id, t FROM ${table}`)).map((row) => ({ id: Number(row.id), t: row.t }))
    await eventually(() => JSON.stringify(sorted(shape.currentRows)) === JSON.stringify(sorted(wanted)))
  })

  test("control messages tell how far the server is", async (t) => {
    const table = await w.table("id int PRIMARY KEY")
    const { stream } = client(t, { table })
    const lsns = []
    stream.subscribe((messages) => lsns.push(...messages.filter((m) => isControlMessage(m) && m.headers.control === "up-to-date").map((m) => BigInt(m.headers.global_last_seen_lsn))))
    await eventually(() => stream.isUpToDate)
    await w.sql(`INSERT INTO ${table} VALUES (1)`)
    const lsn = BigInt(await w.one("SELECT (pg_current_wal_lsn() - '0/0')::text"))
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    await eventually(() => lsns.some((seen) => seen >= lsn))
  })
})
