// Changes are merged into the rows that new clients begin with. Connected clients notice nothing; a client that has been away for longer than
// promised is told to begin again.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { World, eventually, sleep } from "./support/world.mjs"

const { Shape, ShapeStream } = await import("@electric-sql/client")

const KEEP_MS = 3000
let w
before(async () => (w = await World.start({ settings: { THALWEG_SHAPE_LOG_KEEP: `${KEEP_MS}ms`, THALWEG_SHAPE_COMPACT_BYTES: "2KiB" } })))
after(() => w?.stop())

const merged = async () => Number(/^thalweg_shape_compactions_total (\d+)/m.exec(await (await fetch(`${w.base}/metrics`)).text())[1])

/** A table and a shape of it, with changes that were merged: most of them are of one row. */
async function busy(params = {}) {
  const table = await w.table("id int PRIMARY KEY, n int, note text")
  await w.sql(`INSERT INTO ${table} SELECT i, 0, 'note' FROM generate_series(1, 20) i`)
  const shape = await w.synced({ table, ...params })
  const away = await w.synced({ table, ...params })
  const begun = await merged()
  for (let i = 0; i < 60; i++) await w.sql(`UPDATE ${table} SET n = n + 1 WHERE id = 1`)
  await w.sql(`DELETE FROM ${table} WHERE id = 2`)
  await w.agrees(shape)
  await eventually(async () => (await merged()) > begun, { what: "a merge" })
  return { table, shape, away }
}

describe("when changes have been merged", () => {
  for (const replica of ["default", "full"])
    test(`a new client reads none that was overwritten (${replica})`, async () => {
      const { table, shape } = await busy({ replica })
      // The first merge may have come in the middle of the changes; a client that begins then is a reason for the next.
      const begins = async () => {
        const late = await w.synced({ table, replica })
        assert.ok(late.log.filter((message) => message.key).length < 30, `it reads ${late.log.length} messages`)
        return late
      }
      const late = await eventually(begins, { what: "rows that have the changes" })
      await w.agrees(late)
      assert.notEqual(late.handle, shape.handle)
      assert.equal(late.log.filter((message) => message.headers.control === "snapshot-end").length, 1)
      await w.sql(`UPDATE ${table} SET note = 'x' WHERE id = 3`)
      for (const each of [shape, late]) await w.agrees(each)
      assert.deepEqual([shape.refetches, late.refetches], [0, 0])
    })

  test("a client that has been away gets every change, deletes too, within the time that is promised", async () => {
    const { away } = await busy()
    await w.agrees(away)
    assert.equal(away.refetches, 0)
    assert.ok(away.log.some((message) => message.headers.operation === "delete"))
  })

  test("one that has been away for longer begins again with another handle; a live one goes on", async () => {
    const { table, shape, away } = await busy()
    const handle = shape.handle
    await eventually(
      async () => {
        const answer = await w.request({ table, offset: away.offset, handle: away.handle })
        assert.equal(answer.header("electric-handle") === away.handle, answer.status === 200)
        return answer.status === 409
      },
      { within: 4 * KEEP_MS, what: "the end of what is kept" },
    )
    await away.sync()
    await w.agrees(away)
    assert.ok(away.refetches >= 1)
    await w.sql(`INSERT INTO ${table} VALUES (99, 1, 'after')`)
    await w.agrees(shape)
    assert.deepEqual([shape.handle, shape.refetches], [handle, 0])
  })

  test("snapshot-end names the transactions that were merged", async () => {
    const { table } = await busy()
    await w.sql(`UPDATE ${table} SET n = -1 WHERE id = 5`)
    const late = await w.synced({ table })
    const end = late.log.find((message) => message.headers.control === "snapshot-end").headers
    const seen = new Set(late.log.flatMap((message) => message.headers.txids ?? []).map(Number))
    for (const xid of seen) assert.ok(xid >= Number(end.xmax) || end.xip_list.includes(String(xid)), `${xid} comes after the rows`)
    assert.ok(Number(end.xmax) > Number(end.xmin) - 1)
  })

  test("the official client that comes back after that gets the rows", async (t) => {
    const { table, away } = await busy()
    await eventually(async () => (await w.request({ table, offset: away.offset, handle: away.handle })).status === 409, { within: 4 * KEEP_MS })
    const abort = new AbortController()
    t.after(() => abort.abort())
    const errors = []
    const stream = new ShapeStream({
      url: `${w.base}/v1/shape`,
      params: { table },
      offset: away.offset,
      handle: away.handle,
      signal: abort.signal,
      onError: (error) => void errors.push(error),
    })
    const shape = new Shape(stream)
    await eventually(() => stream.isUpToDate && shape.currentRows.length === 19, { what: "all rows" })
    assert.deepEqual(errors, [])
    assert.equal(shape.currentRows.find((row) => row.id === 1).n, 60)
    assert.notEqual(stream.shapeHandle, away.handle)
    await w.sql(`UPDATE ${table} SET n = 61 WHERE id = 1`)
    await eventually(() => shape.currentRows.find((row) => row.id === 1).n === 61)
  })
})

describe("rows of subqueries", () => {
  test("keep their reasons when they are merged, and go with these", async () => {
    const parent = await w.table("id int PRIMARY KEY, kind int", "(1, 1)", "(2, 2)", "(3, 1)")
    const child = await w.table("id int PRIMARY KEY, parent_id int, n int")
    await w.sql(`INSERT INTO ${child} SELECT i, i % 4, 0 FROM generate_series(1, 20) i`)
    const one = `parent_id IN (SELECT id FROM ${parent} WHERE kind = 1)`
    const shapes = [await w.synced({ table: child, where: one }), await w.synced({ table: child, where: `${one} OR n < 0`, replica: "full" })]
    const begun = await merged()
    for (let i = 0; i < 60; i++) {
      await w.sql(`UPDATE ${child} SET n = n + 1 WHERE id % 4 = 1`)
      if (i % 10 === 3) await w.sql(`UPDATE ${parent} SET kind = 3 - kind`)
      if (i % 10 === 7) await w.sql(`UPDATE ${child} SET parent_id = 1 + id % 3, n = -n WHERE id % 5 = ${i % 5}`)
      if (i % 20 === 9) for (const shape of shapes) await w.agrees(shape)
    }
    for (const shape of shapes) await w.agrees(shape)
    await eventually(async () => (await merged()) >= begun + 2, { what: "merges" })
    for (const restart of [false, true]) {
      if (restart) await w.restart()
      for (const shape of shapes.slice(0, 2)) {
        // The last changes may wait for the next merge.
        const late = await eventually(async () => {
          const late = await w.synced(shape.params)
          return late.log.filter((message) => message.key).length < 100 && late
        }, { what: "a shape whose changes are merged" })
        await w.agrees(late)
        if (!shape.refetches) assert.notEqual(late.handle, shape.handle)
        if (!restart) shapes.push(late)
      }
      for (const sql of [`UPDATE ${parent} SET kind = 2 WHERE id = 1`, `UPDATE ${child} SET n = -1 WHERE id = 6`, `UPDATE ${parent} SET kind = 1`, `DELETE FROM ${parent} WHERE id = 3`, `INSERT INTO ${parent} VALUES (3, 1)`]) {
        await w.sql(sql)
        for (const shape of shapes) {
          shape.upToDate = false
          await w.agrees(shape)
        }
      }
    }
  })
})

describe("killed while changes are merged", () => {
  test("again and again under writes: nothing is lost or doubled, for whoever began when", { timeout: 120000 }, async () => {
    const table = await w.table("id serial PRIMARY KEY, n int, note text")
    const chosen = await w.table("n int PRIMARY KEY")
    const where = `n IN (SELECT n FROM ${chosen})`
    const shapes = [await w.synced({ table }), await w.synced({ table, where: "n % 2 = 0" }), await w.synced({ table, where }), await w.synced({ table, replica: "full" })]
    const writer = await w.connection()
    let running = true
    const busy = (async () => {
      for (let i = 0; running; i++) {
        await writer.query(`INSERT INTO ${table} (n, note) VALUES (0, repeat('x', 200))`)
        await writer.query(`UPDATE ${table} SET n = n + 1 WHERE id % 10 = ${i % 10}`)
        if (i % 7 === 0) await writer.query(`DELETE FROM ${table} WHERE id % 31 = ${i % 31} OR id < ${i - 60}`)
        if (i % 5 === 0) await writer.query(`INSERT INTO ${chosen} VALUES (${(i / 5) % 8})  ON CONFLICT DO NOTHING`)
        if (i % 5 === 3) await writer.query(`DELETE FROM ${chosen} WHERE n % 3 = ${i % 3}`)
      }
    })()
    let merges = 0
    for (let i = 0; i < 8; i++) {
      await sleep(700 + i * 130)
      merges += await merged()
      await w.restart()
      shapes.push(await w.synced({ ...shapes[i % 4].params }))
      for (const shape of shapes) {
        shape.upToDate = false
        await shape.sync()
      }
    }
    running = false
    await busy
    for (const shape of shapes) await w.agrees(shape, { within: 20000 })
    for (const shape of shapes.slice(0, 4)) await w.agrees(await w.synced(shape.params))
    assert.ok(merges >= 3, `${merges} merges`)
  })
})
