// The initial data, and the changes behind it.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { compareOffsets } from "./support/shape.mjs"
import { World } from "./support/world.mjs"

let w
before(async () => (w = await World.start()))
after(() => w?.stop())

describe("initial data", () => {
  test("the first answer is the rows, as text, with nothing that only changes have", async () => {
    const table = await w.table("id int PRIMARY KEY, title text, n numeric", "(1, 'one', 1.50)", "(2, NULL, NULL)")
    const answer = await w.request({ table, offset: "-1" })
    assert.equal(answer.status, 200)
    const rows = answer.body.filter((message) => message.key)
    assert.deepEqual(rows.sort((a, b) => (a.key < b.key ? -1 : 1)), [
      { key: `"public"."${table}"/"1"`, value: { id: "1", title: "one", n: "1.50" }, headers: { operation: "insert", relation: ["public", table] } },
      { key: `"public"."${table}"/"2"`, value: { id: "2", title: null, n: null }, headers: { operation: "insert", relation: ["public", table] } },
    ])
  })

  test("it ends with the snapshot's end and is never up to date", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const answer = await w.request({ table, offset: "-1" })
    const end = answer.body.at(-1).headers
    assert.equal(end.control, "snapshot-end")
    assert.match(end.xmin, /^\d+$/)
    assert.match(end.xmax, /^\d+$/)
    assert.ok(Array.isArray(end.xip_list))
    assert.equal(answer.header("electric-up-to-date"), null)
    assert.equal(answer.header("electric-offset"), "0_0")
    assert.equal(answer.header("content-type"), "application/json; charset=utf-8")
  })

  test("an empty table has nothing but the snapshot's end", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const answer = await w.request({ table, offset: "-1" })
    assert.equal(answer.body.length, 1)
    assert.equal(answer.body[0].headers.control, "snapshot-end")
  })

  test("behind the snapshot the answer is up to date", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const first = await w.request({ table, offset: "-1" })
    const next = await w.request({ table, offset: first.header("electric-offset"), handle: first.header("electric-handle") })
    assert.equal(next.body.length, 1)
    assert.equal(next.body[0].headers.control, "up-to-date")
    assert.match(next.body[0].headers.global_last_seen_lsn, /^\d+$/)
    assert.equal(next.header("electric-up-to-date"), "")
    assert.equal(next.header("electric-offset"), "0_inf")
  })

  test("the same definition is the same shape, however it is written", async () => {
    const table = await w.table("id int PRIMARY KEY, a text, b text")
    const handle = async (params) => (await w.request({ table, offset: "-1", ...params })).header("electric-handle")
    const plain = await handle({})
    assert.equal(await handle({}), plain)
    assert.equal(await handle({ table: `public.${table}` }), plain)
    assert.equal(await handle({ table: `"public"."${table}"` }), plain)
    assert.equal(await handle({ table: table.toUpperCase() }), plain)
    assert.equal(await handle({ columns: "id,a" }), await handle({ columns: "a,id" }))
    assert.equal(await handle({ where: "a = 'x'" }), await handle({ where: "a  =  'x'" }))
    assert.equal(await handle({ where: "a = 'x'" }), await handle({ where: "a = $1", params: { 1: "x" } }))
    const different = [{}, { columns: "id,a" }, { where: "a = 'x'" }, { where: "a = 'y'" }, { replica: "full" }, { log: "changes_only" }]
    const handles = await Promise.all(different.map(handle))
    assert.equal(new Set(handles).size, different.length, "every other definition is another shape")
  })

  test("a handle is ignored at the beginning", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const answer = await w.request({ table, offset: "-1", handle: "made-up" })
    assert.equal(answer.status, 200)
    assert.notEqual(answer.header("electric-handle"), "made-up")
  })

  test("a long snapshot comes in chunks of the size that was set", async () => {
    const table = await w.table("id int PRIMARY KEY, text text")
    await w.sql(`INSERT INTO ${table} SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 60) i`)
    const shape = w.shape({ table })
    const sizes = []
    const offsets = []
    for (let i = 0; i < 40 && !shape.upToDate; i++) {
      const answer = await shape.step()
      sizes.push(answer.text.length)
      offsets.push(answer.header("electric-offset"))
    }
    assert.equal(shape.rows.size, 60)
    assert.ok(sizes.length > 5, `${sizes.length} answers`)
    for (const size of sizes.slice(0, -2)) assert.ok(size > 8000 && size < 12500, `a chunk of ${size} bytes; all: ${sizes}`)
    assert.deepEqual(offsets.slice(0, 3), ["0_0", "0_1", "0_2"])
    assert.equal(shape.log.filter((message) => message.headers.control === "snapshot-end").length, 1)
  })

  test("many clients at once see the same shape once", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)", "(2)", "(3)")
    const answers = await Promise.all(Array.from({ length: 40 }, () => w.request({ table, offset: "-1" })))
    assert.equal(new Set(answers.map((answer) => answer.header("electric-handle"))).size, 1)
    assert.equal(new Set(answers.map((answer) => answer.text)).size, 1)
  })

  test("writers that run while the snapshot is taken are neither lost nor doubled", async () => {
    const table = await w.table("id serial PRIMARY KEY, n int")
    await w.sql(`INSERT INTO ${table} (n) SELECT i FROM generate_series(1, 500) i`)
    const writers = await Promise.all(Array.from({ length: 3 }, () => w.connection()))
    let running = true
    const busy = writers.map(async (writer, at) => {
      for (let i = 0; running; i++) {
        await writer.query(`INSERT INTO ${table} (n) VALUES ($1)`, [i])
        await writer.query(`UPDATE ${table} SET n = n + 1 WHERE id % 50 = $1`, [(i * 3 + at) % 50])
        if (i % 3 === 0) await writer.query(`DELETE FROM ${table} WHERE id % 97 = $1`, [i % 97])
      }
    })
    const shapes = []
    for (let i = 0; i < 8; i++) shapes.push(await w.synced({ table, where: `n > ${-i - 1}` }))
    running = false
    await Promise.all(busy)
    for (const shape of shapes) await w.agrees(shape)
  })
})

describe("changes", () => {
  test("an insert says what was written, by whom and where", async () => {
    const table = await w.table("id int PRIMARY KEY, title text, n int")
    const shape = w.shape({ table })
    let xid
    const [message] = await shape.changes(async () => {
      xid = await w.one(`WITH i AS (INSERT INTO ${table} VALUES (7, 'seven', NULL) RETURNING 1) SELECT pg_current_xact_id()::text FROM i`)
    })
    const { lsn, ...headers } = message.headers
    assert.match(lsn, /^\d+$/)
    assert.deepEqual(headers, { operation: "insert", relation: ["public", table], txids: [Number(xid)], op_position: 0, last: true })
    assert.deepEqual(message.value, { id: "7", title: "seven", n: null })
    assert.equal(message.key, `"public"."${table}"/"7"`)
    assert.equal(shape.offset, `${lsn}_0`)
    assert.equal(shape.lsn, BigInt(lsn), "an answer with data is up to date as of its own transaction")
  })

  test("an update says the key and what changed", async () => {
    const table = await w.table("id int PRIMARY KEY, a text, b text", "(1, 'x', 'y')")
    const [message] = await w.shape({ table }).changes(() => w.sql(`UPDATE ${table} SET b = 'z'`))
    assert.equal(message.headers.operation, "update")
    assert.deepEqual(message.value, { id: "1", b: "z" })
    assert.equal(message.old_value, undefined)
  })

  test("an update can set NULL", async () => {
    const table = await w.table("id int PRIMARY KEY, a text", "(1, 'x')")
    const [message] = await w.shape({ table }).changes(() => w.sql(`UPDATE ${table} SET a = NULL`))
    assert.deepEqual(message.value, { id: "1", a: null })
  })

  test("a delete says the key", async () => {
    const table = await w.table("id int PRIMARY KEY, a text", "(1, 'x')")
    const [message] = await w.shape({ table }).changes(() => w.sql(`DELETE FROM ${table}`))
    assert.equal(message.headers.operation, "delete")
    assert.deepEqual(message.value, { id: "1" })
  })

  test("an update that changes nothing is not told", async () => {
    const table = await w.table("id int PRIMARY KEY, a text", "(1, 'x')")
    const shape = w.shape({ table })
    const changes = await shape.changes(async () => {
      await w.sql(`UPDATE ${table} SET a = a`)
      await w.sql(`UPDATE ${table} SET a = 'y'`)
    })
    assert.deepEqual(changes.map((message) => message.value), [{ id: "1", a: "y" }])
  })

  test("the changes of one transaction are numbered, and the last one says so", async () => {
    const table = await w.table("id int PRIMARY KEY, a text", "(1, 'x')", "(2, 'x')")
    const shape = w.shape({ table })
    const changes = await shape.changes(
      () => w.sql(`BEGIN; INSERT INTO ${table} VALUES (3, 'x'); UPDATE ${table} SET a = 'y' WHERE id = 1; DELETE FROM ${table} WHERE id = 2; COMMIT`),
      3,
    )
    assert.deepEqual(changes.map((message) => message.headers.operation), ["insert", "update", "delete"])
    assert.deepEqual(changes.map((message) => message.headers.op_position), [0, 2, 4])
    assert.deepEqual(changes.map((message) => message.headers.last ?? false), [false, false, true])
    assert.equal(new Set(changes.map((message) => message.headers.lsn)).size, 1)
    assert.equal(new Set(changes.map((message) => message.headers.txids[0])).size, 1)
  })

  test("transactions come whole and in the order of their commits", async () => {
    const table = await w.table("id int PRIMARY KEY, tx int")
    const shape = await w.synced({ table })
    const [a, b] = [await w.connection(), await w.connection()]
    await a.query("BEGIN")
    await a.query(`INSERT INTO ${table} VALUES (1, 1)`)
    await b.query("BEGIN")
    await b.query(`INSERT INTO ${table} VALUES (2, 2)`)
    await a.query(`INSERT INTO ${table} VALUES (3, 1)`)
    await b.query("COMMIT")
    await a.query("COMMIT")
    await shape.until((s) => s.rows.size === 3)
    const inserts = shape.log.filter((message) => message.key)
    assert.deepEqual(inserts.map((message) => message.value.tx), ["2", "1", "1"])
    assert.ok(BigInt(inserts[0].headers.lsn) < BigInt(inserts[1].headers.lsn))
  })

  test("what is rolled back is not told, nor a savepoint's part", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = w.shape({ table })
    const changes = await shape.changes(async () => {
      await w.sql(`BEGIN; INSERT INTO ${table} VALUES (1); ROLLBACK`)
      await w.sql(`BEGIN; INSERT INTO ${table} VALUES (2); SAVEPOINT s; INSERT INTO ${table} VALUES (3); ROLLBACK TO s; INSERT INTO ${table} VALUES (4); COMMIT`)
    }, 2)
    assert.deepEqual(changes.map((message) => message.value.id), ["2", "4"])
  })

  test("another key is a delete and an insert that name each other", async () => {
    const table = await w.table("id int PRIMARY KEY, a text", "(1, 'x')")
    const shape = w.shape({ table })
    const [gone, come] = await shape.changes(() => w.sql(`UPDATE ${table} SET id = 2, a = 'y'`), 2)
    const key = (id) => `"public"."${table}"/"${id}"`
    assert.equal(gone.headers.operation, "delete")
    assert.equal(gone.key, key(1))
    assert.deepEqual(gone.value, { id: "1" })
    assert.equal(gone.headers.key_change_to, key(2))
    assert.equal(come.headers.operation, "insert")
    assert.equal(come.key, key(2))
    assert.deepEqual(come.value, { id: "2", a: "y" })
    assert.equal(come.headers.key_change_from, key(1))
    assert.equal(come.headers.op_position, gone.headers.op_position + 1)
    assert.equal(come.headers.last, true)
  })

  test("large values that an update does not touch are not lost", async () => {
    const table = await w.table("id int PRIMARY KEY, big text, n int")
    await w.sql(`ALTER TABLE ${table} ALTER big SET STORAGE EXTERNAL`)
    await w.sql(`INSERT INTO ${table} VALUES (1, repeat('abcdefghij', 5000), 1)`)
    const partial = await w.synced({ table })
    const full = await w.synced({ table, replica: "full" })
    const where = await w.synced({ table, where: "n = 2" })
    await w.sql(`UPDATE ${table} SET n = 2`)
    await full.until((s) => s.values()[0].n === "2")
    await where.until((s) => s.rows.size === 1)
    await partial.until((s) => s.values()[0].n === "2")
    for (const shape of [partial, full, where]) assert.equal(shape.values()[0].big.length, 50000)
    assert.deepEqual(partial.log.filter((m) => m.headers.operation === "update")[0].value, { id: "1", n: "2" })
  })

  test("a long log comes in chunks that stay as they are", async () => {
    const table = await w.table("id int PRIMARY KEY, text text")
    const shape = await w.synced({ table })
    const { handle } = shape
    for (let i = 0; i < 6; i++) await w.sql(`INSERT INTO ${table} SELECT i, repeat(md5(i::text), 20) FROM generate_series(${i * 10 + 1}, ${i * 10 + 10}) i`)
    await shape.until((s) => s.rows.size === 60)
    const walk = async () => {
      const out = []
      for (let offset = "0_0"; ; ) {
        const answer = await w.request({ table, offset, handle })
        out.push({ offset, next: answer.header("electric-offset"), text: answer.text, etag: answer.header("etag"), up: answer.header("electric-up-to-date") })
        offset = answer.header("electric-offset")
        if (answer.header("electric-up-to-date") !== null) return out
      }
    }
    const once = await walk()
    assert.ok(once.length >= 3, `${once.length} chunks`)
    // A chunk may extend to the end of the transaction that fills it.
    for (const chunk of once.slice(0, -1)) assert.ok(chunk.text.length > 8000 && chunk.text.length < 20000, `a chunk of ${chunk.text.length}`)
    const again = await walk()
    assert.deepEqual(again.slice(0, -1), once.slice(0, -1))
    await w.sql(`INSERT INTO ${table} VALUES (1000, 'one more')`)
    await shape.until((s) => s.rows.size === 61)
    const more = await walk()
    assert.deepEqual(more.slice(0, once.length - 1), once.slice(0, -1))
    for (let i = 1; i < more.length; i++) assert.ok(compareOffsets(more[i].offset, more[i - 1].offset) > 0)
  })

  test("a client that comes late ends with the same rows", async () => {
    const table = await w.table("id int PRIMARY KEY, n int")
    await w.sql(`INSERT INTO ${table} SELECT i, i FROM generate_series(1, 20) i`)
    const early = await w.synced({ table })
    for (let i = 0; i < 20; i++) await w.sql(`UPDATE ${table} SET n = n + 1 WHERE id % 3 = $1`, [i % 3])
    await w.sql(`DELETE FROM ${table} WHERE id > 15`)
    await w.sql(`UPDATE ${table} SET id = id + 100 WHERE id < 5`)
    await w.agrees(early)
    const late = await w.synced({ table })
    assert.equal(late.handle, early.handle)
    await w.agrees(late)
    assert.deepEqual([...late.rows].sort(), [...early.rows].sort())
  })

  test("up-to-date tells how far the server has read, even if nothing here changed", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const other = await w.table("id int PRIMARY KEY")
    const [shape, busy] = [await w.synced({ table }), await w.synced({ table: other })]
    await busy.changes(() => w.sql(`INSERT INTO ${other} VALUES (1)`))
    await shape.step()
    assert.ok(shape.lsn >= busy.lsn, `${shape.lsn} is behind ${busy.lsn}`)
    assert.equal(shape.rows.size, 0)
  })
})

describe("changes only", () => {
  test("there is no initial data, but every change", async () => {
    const table = await w.table("id int PRIMARY KEY, a text", "(1, 'x')")
    const shape = w.shape({ table, log: "changes_only" })
    const answer = await shape.step()
    assert.deepEqual(answer.body.map((message) => message.headers.control), ["snapshot-end"])
    const changes = await shape.changes(async () => {
      await w.sql(`UPDATE ${table} SET a = 'y'`)
      await w.sql(`INSERT INTO ${table} VALUES (2, 'z')`)
    }, 2)
    assert.deepEqual(changes.map((message) => message.value), [{ id: "1", a: "y" }, { id: "2", a: "z" }])
  })
})

describe("from now on", () => {
  test("a new shape starts at the end of its beginning", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const answer = await w.request({ table, offset: "now" })
    assert.equal(answer.status, 200)
    assert.deepEqual(answer.body.map((message) => message.headers.control), ["up-to-date"])
    assert.equal(answer.header("electric-offset"), "0_inf")
    assert.equal(answer.header("electric-has-data"), "false")
    assert.equal(answer.header("electric-up-to-date"), "")
  })

  test("an old shape goes on from its last change", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = w.shape({ table })
    await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (1)`))
    const now = await w.request({ table, offset: "now", handle: shape.handle })
    assert.deepEqual(now.body.map((message) => message.headers.control), ["up-to-date"])
    assert.equal(now.header("electric-offset"), shape.offset)
    assert.equal(now.header("electric-handle"), shape.handle)
    const late = w.shape({ table })
    Object.assign(late, { handle: shape.handle, offset: now.header("electric-offset"), upToDate: true })
    const [change] = await late.changes(() => w.sql(`INSERT INTO ${table} VALUES (2)`))
    assert.equal(change.value.id, "2")
  })
})

describe("replica=full", () => {
  test("updates carry the whole row and what it was, deletes the whole row", async () => {
    const table = await w.table("id int PRIMARY KEY, a text, b text, c text", "(1, 'x', 'y', NULL)")
    const shape = w.shape({ table, replica: "full" })
    await shape.sync()
    assert.equal(shape.log[0].old_value, undefined)
    const [update, gone] = await shape.changes(async () => {
      await w.sql(`UPDATE ${table} SET b = 'z', c = 'new'`)
      await w.sql(`DELETE FROM ${table}`)
    }, 2)
    assert.deepEqual(update.value, { id: "1", a: "x", b: "z", c: "new" })
    assert.deepEqual(update.old_value, { b: "y", c: null })
    assert.equal(gone.headers.operation, "delete")
    assert.deepEqual(gone.value, { id: "1", a: "x", b: "z", c: "new" })
  })

  test("another key is told with whole rows", async () => {
    const table = await w.table("id int PRIMARY KEY, a text", "(1, 'x')")
    const [gone, come] = await w.shape({ table, replica: "full" }).changes(() => w.sql(`UPDATE ${table} SET id = 2`), 2)
    assert.deepEqual(gone.value, { id: "1", a: "x" })
    assert.deepEqual(come.value, { id: "2", a: "x" })
  })
})

describe("columns", () => {
  test("only what was chosen is told, first and later", async () => {
    const table = await w.table("id int PRIMARY KEY, a text, b text, c text", "(1, 'x', 'y', 'z')")
    const shape = w.shape({ table, columns: "a,id" })
    await shape.sync()
    assert.deepEqual(shape.log[0].value, { id: "1", a: "x" })
    assert.deepEqual(Object.keys(shape.schema).sort(), ["a", "id"])
    const [come, change] = await shape.changes(async () => {
      await w.sql(`INSERT INTO ${table} VALUES (2, 'p', 'q', 'r')`)
      await w.sql(`UPDATE ${table} SET b = 'never told' WHERE id = 1`)
      await w.sql(`UPDATE ${table} SET a = 'told', c = 'not' WHERE id = 1`)
    }, 2)
    assert.deepEqual(come.value, { id: "2", a: "p" })
    assert.deepEqual(change.value, { id: "1", a: "told" })
  })

  test("names may need quotes", async () => {
    const table = await w.table(`"Id" int PRIMARY KEY, "has,comma" text, "has""quote" text, "has space" text, plain text`, "(1, 'a', 'b', 'c', 'd')")
    const shape = await w.synced({ table, columns: `"Id","has,comma","has""quote",PLAIN` })
    assert.deepEqual(shape.values(), [{ Id: "1", "has,comma": "a", 'has"quote': "b", plain: "d" }])
  })

  test("the key must be among them, and all must exist", async () => {
    const table = await w.table("id int, part int, a text, PRIMARY KEY (id, part)")
    await w.refuses({ table, offset: "-1", columns: "a" }, { columns: ["The list of columns must include all primary key columns, missing: id, part"] })
    await w.refuses({ table, offset: "-1", columns: "id,a" }, { columns: ["The list of columns must include all primary key columns, missing: part"] })
    await w.refuses({ table, offset: "-1", columns: "id,part,nope" }, { columns: ["The following columns are not found on the table: nope"] })
    await w.refuses({ table, offset: "-1", columns: "id,,part" }, { columns: ["Invalid zero-length delimited identifier"] })
    await w.refuses({ table, offset: "-1", columns: `"id,"part"` }, { columns: ['Invalid unquoted identifier contains special characters: "id'] })
  })

  test("queryable columns are the default choice and its limit, but not for where", async () => {
    const table = await w.table("id int PRIMARY KEY, name text, secret text", "(1, 'a', 'super1')", "(2, 'b', 'other')")
    const queryable = { table, queryable_columns: "id,name" }
    assert.deepEqual((await w.synced({ ...queryable, where: "secret LIKE 'super%'" })).values(), [{ id: "1", name: "a" }])
    assert.deepEqual((await w.synced({ ...queryable, columns: "id" })).column("id"), ["1", "2"])
    await w.refuses({ ...queryable, offset: "-1", columns: "id,name,secret" }, { columns: ["The following columns are not found on the table: secret"] })
  })
})
