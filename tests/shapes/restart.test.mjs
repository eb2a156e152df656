// When the server or its connection to Postgres goes away and returns, a client notices only a pause.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { eventually, sleep, World } from "./support/world.mjs"

let w
before(async () => (w = await World.start()))
after(() => w?.stop())

describe("the server", () => {
  for (const signal of ["SIGKILL", "SIGTERM"])
    test(`${signal}: shapes go on where they were, with the same handle`, async () => {
      const table = await w.table("id int PRIMARY KEY, t text", "(1, 'a')")
      const other = await w.table("id int PRIMARY KEY", "(1)")
      const where = `id IN (SELECT id FROM ${other})`
      const shapes = [await w.synced({ table }), await w.synced({ table, where: "t = 'a'", columns: "id,t", replica: "full" }), await w.synced({ table, where })]
      await w.sql(`INSERT INTO ${table} VALUES (2, 'a'), (3, 'b')`)
      for (const shape of shapes) await w.agrees(shape)
      const before = shapes.map((shape) => shape.handle)
      const ended = await w.kill(signal)
      if (signal === "SIGTERM") {
        assert.equal(ended.code, 0)
        assert.ok(ended.took < 10000, `it took ${ended.took} ms to stop`)
      }
      await w.sql(`INSERT INTO ${table} VALUES (4, 'a'); UPDATE ${table} SET t = 'b' WHERE id = 1; DELETE FROM ${table} WHERE id = 2; INSERT INTO ${other} VALUES (3), (4)`)
      await w.serve()
      for (const shape of shapes) {
        shape.upToDate = false
        await w.agrees(shape)
      }
      assert.deepEqual(shapes.slice(0, 2).map((shape) => shape.handle), before.slice(0, 2))
      assert.deepEqual(shapes.slice(0, 2).map((shape) => shape.refetches), [0, 0])
      for (const shape of shapes) {
        const late = await w.synced(shape.params)
        await w.agrees(late)
      }
      await w.sql(`INSERT INTO ${table} VALUES (5, 'a')`)
      for (const shape of shapes) await w.agrees(shape)
    })

  test("killed again and again under writes, nothing is lost or doubled", async () => {
    const table = await w.table("id serial PRIMARY KEY, n int")
    const shape = await w.synced({ table })
    const writer = await w.connection()
    let running = true
    const busy = (async () => {
      for (let i = 0; running; i++) {
        await writer.query(`INSERT INTO ${table} (n) VALUES (0)`)
        await writer.query(`UPDATE ${table} SET n = n + 1 WHERE id % 10 = ${i % 10}`)
        if (i % 7 === 0) await writer.query(`DELETE FROM ${table} WHERE id % 31 = ${i % 31}`)
      }
    })()
    for (let i = 0; i < 5; i++) {
      await sleep(200 + i * 50)
      await w.restart()
      shape.upToDate = false
      await shape.sync()
    }
    running = false
    await busy
    await w.agrees(shape, { within: 20000 })
    assert.equal(shape.refetches, 0)
  })

  test("handles of deleted shapes are never used again", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const seen = new Set()
    for (let i = 0; i < 4; i++) {
      const { handle } = await w.synced({ table })
      assert.ok(!seen.has(handle))
      seen.add(handle)
      await w.request({ table }, { method: "DELETE" })
      await w.restart()
    }
  })
})

describe("Postgres", () => {
  test("a replication connection that is cut comes back by itself", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = await w.synced({ table })
    for (let i = 1; i <= 5; i++) {
      await w.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1 AND active", [w.database])
      await w.sql(`INSERT INTO ${table} VALUES (${i})`)
      await w.agrees(shape, { within: 30000 })
    }
    assert.equal(shape.refetches, 0)
  })

  test("every connection cut at once is survived", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    await w.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()", [w.database])
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    await w.agrees(shape, { within: 30000 })
    await eventually(async () => (await w.request({ table, offset: "-1", where: "id = 1" })).status === 200, { within: 30000, what: "a new shape" })
  })

  test("a slot that somebody dropped means that everything is read anew", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    await w.kill()
    await eventually(async () => {
      await w.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1", [w.database])
      return true
    })
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    await w.serve()
    shape.upToDate = false
    await w.agrees(shape, { within: 30000 })
    assert.equal(shape.refetches, 1)
  })
})
