// Snapshots of a part of a shape: asked for once, read from Postgres, to be laid over the changes.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { World } from "./support/world.mjs"

let w
before(async () => (w = await World.start()))
after(() => w?.stop())

const json = { "content-type": "application/json" }
// Each is asked by GET, by POST with flat keys and by POST with a nested object; all must say the same.
async function subset(params, part) {
  const base = { offset: "-1", log: "changes_only", ...params }
  const answers = [
    await w.request({ ...base, subset: part }),
    await w.request(base, { method: "POST", headers: json, body: JSON.stringify({ subset: part }) }),
  ]
  // Flat keys of a body are the subset's, never the shape's own.
  if (Object.keys(part).length) answers.push(await w.request(base, { method: "POST", headers: json, body: JSON.stringify(part) }))
  for (const other of answers.slice(1)) {
    assert.equal(other.status, answers[0].status, `${other.text} as POST, ${answers[0].text} as GET`)
    if (other.status === 200) assert.deepEqual(other.body.data.map((row) => row.value), answers[0].body.data.map((row) => row.value))
    else assert.deepEqual(other.body, answers[0].body)
  }
  return answers[0]
}
const values = (answer, column) => answer.body.data.map((row) => row.value[column])

async function refused(params, part, field, pattern) {
  const answer = await subset(params, part)
  assert.equal(answer.status, 400, `${JSON.stringify(part)}: ${answer.text.slice(0, 300)}`)
  assert.equal(answer.body.message, "Invalid request")
  const said = [].concat(answer.body.errors.subset?.[field] ?? []).join()
  assert.match(said, pattern, answer.text)
}

describe("a subset", () => {
  test("is rows with a mark, and the snapshot that they are from", async () => {
    const table = await w.table("id int PRIMARY KEY, t text", "(1, 'a')", "(2, NULL)")
    const answer = await w.request({ table, offset: "-1", log: "changes_only", subset: { where: "true" } })
    assert.equal(answer.status, 200)
    assert.equal(answer.header("electric-snapshot"), "true")
    assert.equal(answer.header("cache-control"), "no-cache")
    assert.ok(answer.header("electric-handle"))
    const { metadata, data } = answer.body
    assert.match(metadata.xmin, /^\d+$/)
    assert.match(metadata.xmax, /^\d+$/)
    assert.ok(metadata.xip_list.every((xid) => /^\d+$/.test(xid)))
    assert.match(metadata.database_lsn, /^\d+$/)
    assert.ok(Number.isInteger(metadata.snapshot_mark) && metadata.snapshot_mark >= 0 && metadata.snapshot_mark < 2 ** 31)
    assert.deepEqual(data.sort((a, b) => a.value.id - b.value.id), [
      { key: `"public"."${table}"/"1"`, value: { id: "1", t: "a" }, headers: { operation: "insert", relation: ["public", table], snapshot_mark: metadata.snapshot_mark } },
      { key: `"public"."${table}"/"2"`, value: { id: "2", t: null }, headers: { operation: "insert", relation: ["public", table], snapshot_mark: metadata.snapshot_mark } },
    ])
  })

  test("is within the shape, filtered further", async () => {
    const table = await w.table("id int PRIMARY KEY, n int, t text", "(1, 1, 'a')", "(2, 1, 'b')", "(3, 2, 'a')")
    assert.deepEqual(values(await subset({ table, where: "n = 1" }, { where: "t = 'a'" }), "id"), ["1"])
    assert.deepEqual(values(await subset({ table, where: "n = $1", params: { 1: "1" } }, { where: "t = $1", params: { 1: "b" } }), "id"), ["2"])
    assert.deepEqual(values(await subset({ table }, { where: "t ILIKE $1", params: { 1: "B%" } }), "id"), ["2"])
    assert.deepEqual(values(await subset({ table }, { where: "t = $1::text", params: { 1: "b" } }), "id"), ["2"])
    assert.deepEqual(values(await subset({ table, columns: "id,n" }, { where: "t = 'b'" }), "t"), [undefined])
  })

  test("can be ordered, limited and paged through", async () => {
    const table = await w.table("id int PRIMARY KEY, a text, n int", "(1, 'x', 3)", "(2, 'y', NULL)", "(3, 'z', 1)", "(4, 'x', 2)")
    const order = async (part) => values(await subset({ table }, part), "id")
    assert.deepEqual(await order({ order_by: "id" }), ["1", "2", "3", "4"])
    assert.deepEqual(await order({ order_by: "id DESC", limit: 2 }), ["4", "3"])
    assert.deepEqual(await order({ order_by: "id ASC", limit: 2, offset: 1 }), ["2", "3"])
    assert.deepEqual(await order({ order_by: "id", offset: 3 }), ["4"])
    assert.deepEqual(await order({ order_by: "a DESC, id ASC" }), ["3", "2", "1", "4"])
    assert.deepEqual(await order({ order_by: "n NULLS FIRST" }), ["2", "3", "4", "1"])
    assert.deepEqual(await order({ order_by: "n DESC NULLS LAST" }), ["1", "4", "3", "2"])
    assert.deepEqual(await order({ order_by: '"n" ASC NULLS LAST, id' }), ["3", "4", "1", "2"])
    await refused({ table }, { limit: 1 }, "order_by", /order_by is required when limit or offset is present/)
    await refused({ table }, { offset: 1 }, "order_by", /order_by is required when limit or offset is present/)
    await refused({ table }, { limit: 0, order_by: "id" }, "limit", /must be greater than 0/)
    await refused({ table }, { limit: -1, order_by: "id" }, "limit", /must be greater than 0/)
    await refused({ table }, { offset: -1, order_by: "id" }, "offset", /must be greater than or equal to 0/)
    await refused({ table }, { limit: "x", order_by: "id" }, "limit", /is invalid/)
  })

  test("may use enums, whose values Postgres checks", async () => {
    const type = w.name("status")
    await w.sql(`CREATE TYPE ${type} AS ENUM ('new', 'open', 'done')`)
    const table = await w.table(`id int PRIMARY KEY, s ${type}`, "(1, 'new')", "(2, 'open')", "(3, 'done')")
    assert.deepEqual(values(await subset({ table }, { where: "s = $1", params: { 1: "open" } }), "id"), ["2"])
    assert.deepEqual(values(await subset({ table }, { where: "s IN ('new', 'done')", order_by: "id" }), "id"), ["1", "3"])
    for (const part of [{ where: "s = 'nope'" }, { where: "s IN ('nope')" }, { where: "s = ANY($1)", params: { 1: "{nope}" } }]) {
      const answer = await subset({ table }, part)
      assert.equal(answer.status, 400, answer.text)
      assert.match(String(answer.body.errors.subset.where), /nope/)
    }
  })

  test("may use only queryable columns", async () => {
    const table = await w.table("id int PRIMARY KEY, name text, secret text", "(1, 'a', 's1')", "(2, 'b', 's2')")
    assert.deepEqual(values(await subset({ table, columns: "id,name", queryable_columns: "id,name,secret" }, { where: "secret = 's1'" }), "id"), ["1"])
    await refused({ table, columns: "id,name", queryable_columns: "id,name" }, { where: "secret = 's1'" }, "where", /unknown reference secret/)
    await refused({ table, columns: "id,name", queryable_columns: "id,name" }, { order_by: "secret ASC" }, "order_by", /unknown reference secret/)
  })

  test("takes no SQL but conditions and columns", async () => {
    const table = await w.table("id int PRIMARY KEY, t text", "(1, 'a')")
    for (const order_by of [
      "CAST((SELECT version()) AS int) DESC",
      "pg_sleep(5)",
      "(SELECT count(*) FROM pg_tables)",
      "id::text",
      "CASE WHEN (SELECT true) THEN 1 ELSE 0 END",
      "CAST((SELECT string_agg(table_name, ',') FROM information_schema.tables) AS int) DESC",
    ])
      await refused({ table }, { order_by }, "order_by", /not allowed in ORDER BY/)
    for (const order_by of ["nope", "id; DROP TABLE x", "id LIMIT 1", "id,", "id SIDEWAYS", "1"]) await refused({ table }, { order_by }, "order_by", /./)
    for (const where of ["id IN (SELECT 1)", "nope = 1", "pg_sleep(5) IS NULL", "id", "true; SELECT 1", "1 x 1", "t = $1"]) await refused({ table }, { where }, "where", /./)
    const huge = await w.request({ table, offset: "-1" }, { method: "POST", headers: json, body: JSON.stringify({ subset: { where: `t = '${"a".repeat(70000)}'` } }) })
    assert.equal(huge.status, 400)
    assert.match(huge.body.errors.subset.where[0], /bigger than maximum size/)
  })

  test("laid over the changes gives what is there", async () => {
    const table = await w.table("id int PRIMARY KEY, n int")
    const shape = await w.synced({ table, log: "changes_only" })
    const writer = await w.connection()
    let running = true
    const busy = (async () => {
      for (let i = 1; running; i++) {
        await writer.query(`INSERT INTO ${table} VALUES (${i}, 0)`)
        await writer.query(`UPDATE ${table} SET n = n + 1 WHERE id % 7 = ${i % 7}`)
        if (i % 5 === 0) await writer.query(`DELETE FROM ${table} WHERE id = ${i - 3}`)
      }
    })()
    for (let round = 0; round < 5; round++) {
      const rows = new Map()
      const answer = await w.request({ table, log: "changes_only", offset: shape.offset, handle: shape.handle, subset: { where: "true" } })
      assert.equal(answer.status, 200, answer.text)
      const { metadata, data } = answer.body
      for (const row of data) rows.set(row.key, row.value)
      const seen = (xid) => xid < BigInt(metadata.xmax) && (xid < BigInt(metadata.xmin) || !metadata.xip_list.map(BigInt).includes(xid))
      // Changes of transactions that the snapshot has are left out.
      const from = w.shape({ table, log: "changes_only" })
      Object.assign(from, { handle: shape.handle, offset: shape.offset })
      if (round === 4) {
        running = false
        await busy
      }
      const lsn = BigInt(await w.one("SELECT (pg_current_wal_lsn() - '0/0')::text"))
      await writer.query(`INSERT INTO ${table} VALUES (${-round - 1}, 0)`)
      await from.until((s) => s.lsn > lsn)
      for (const { key, value, headers } of from.log) {
        if (!key || headers.txids.every((xid) => seen(BigInt(xid)))) continue
        if (headers.operation === "delete") rows.delete(key)
        else rows.set(key, { ...rows.get(key), ...value })
      }
      if (!running) {
        const wanted = (await w.sql(`SELECT id, n FROM ${table}`)).map((row) => JSON.stringify(row)).sort()
        assert.deepEqual([...rows.values()].map((row) => JSON.stringify({ id: row.id, n: row.n })).sort(), wanted)
      }
    }
  })

  test("of a shape whose handle is gone is a 409", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const answer = await w.request({ table, log: "changes_only", offset: "0_0", handle: "nope", subset: { where: "true" } })
    assert.equal(answer.status, 409)
  })

  test("is not answered by 304", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const params = { table, log: "changes_only", offset: "-1", subset: { where: "true" } }
    const etag = (await w.request(params)).header("etag")
    assert.equal((await w.request(params, { headers: { "if-none-match": etag ?? '"x"' } })).status, 200)
  })
})
