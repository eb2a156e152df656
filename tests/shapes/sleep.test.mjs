// A database may sleep while no client asks for shapes (database_idle), and a slot may go with the connection (replication_temporary_slot).

import assert from "node:assert/strict"
import { afterEach, describe, test } from "node:test"
import { Proxy } from "./support/proxy.mjs"
import { World, eventually } from "./support/world.mjs"

let w
afterEach(async () => {
  await w?.stop()
  w = undefined
})

const connections = () => w.one("SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'thalweg'", [w.database])
const asleep = () => eventually(async () => (await w.metric("shape_source_asleep")) === 1 && (await connections()) === "0", { within: 90000, what: "no connection" })
const COLUMNS = "id int PRIMARY KEY, t text"

describe("a database that nobody needs", () => {
  test("is left alone until a client asks; then nothing is missing, and nothing is read again", async () => {
    w = await World.start({ settings: { THALWEG_DATABASE_IDLE: "1s" } })
    const table = await w.table(COLUMNS, "(1, 'a')", "(2, 'b')")
    const shapes = [await w.synced({ table }), await w.synced({ table, where: `id IN (SELECT id FROM ${table} WHERE t <> 'no')` })]
    for (const round of ["x", "y"]) {
      await asleep()
      const health = await w.request({}, { path: "/v1/health" })
      assert.deepEqual([health.status, health.body.status], [200, "active"])
      await w.sql(`UPDATE ${table} SET t = '${round}' WHERE id = 1; DELETE FROM ${table} WHERE id = 2; INSERT INTO ${table} VALUES (2, '${round}')`)
      await asleep()
      // A new shape wakes it as well as one that is there.
      if (round === "y") shapes.push(await w.synced({ table, where: "id > 0" }))
      for (const shape of shapes) await w.agrees(shape, { within: 30000 })
    }
    assert.deepEqual(shapes.map((shape) => shape.refetches), [0, 0, 0])
    assert.doesNotMatch(w.log(), /WARN .*(no changes come|dropped)/)
  })

  test("is not left alone by a client that waits for the next change", async () => {
    w = await World.start({ settings: { THALWEG_DATABASE_IDLE: "500ms", ELECTRIC_LONG_POLL_TIMEOUT: "9000" } })
    const table = await w.table(COLUMNS, "(1, 'a')")
    const shape = await w.synced({ table })
    const waiting = shape.live({ within: 20000 })
    // The stream stays for five seconds in any case.
    const until = Date.now() + 7000
    await eventually(async () => {
      assert.equal(await w.metric("shape_source_asleep"), 0)
      return Date.now() > until
    })
    await w.sql(`INSERT INTO ${table} VALUES (2, 'b')`)
    await waiting
    await w.agrees(shape)
    assert.equal(shape.refetches, 0)
  })

  test("is read to the end of its log before it is left alone again, however long that takes", async () => {
    w = await World.start({ serve: false, settings: { THALWEG_DATABASE_IDLE: "1s" } })
    const proxy = await Proxy.start(w.url)
    w.stops.push(() => proxy.stop())
    Object.assign(w.settings, { DATABASE_URL: proxy.url, THALWEG_QUERY_DATABASE_URL: w.url })
    await w.serve()
    const table = await w.table(COLUMNS, "(1, 'a')")
    const shape = await w.synced({ table })
    await eventually(async () => (await w.metric("shape_source_asleep")) === 1, { within: 30000, what: "sleep" })
    await w.sql(`INSERT INTO ${table} VALUES (2, 'b')`)
    // What Postgres has to look through, or to send, takes it longer than the connection stays in any case.
    proxy.holds = (message) => /^d....[kw]/s.test(message)
    await w.request({ table, offset: "-1" })
    await eventually(() => proxy.held === 1, { within: 30000, what: "a stream that is held" })
    const until = Date.now() + 8000
    await eventually(async () => {
      assert.equal(await w.metric("shape_source_asleep"), 0, "it fell asleep before it had read anything")
      return Date.now() > until
    })
    assert.equal(proxy.held, 1)
    proxy.release()
    await eventually(async () => (await shape.sync(), shape.rows.size === 2), { within: 30000, what: "the change" })
    assert.equal(shape.refetches, 0)
    await eventually(async () => (await w.metric("shape_source_asleep")) === 1, { within: 30000, what: "sleep" })
  })

  test("may be altered meanwhile: its shapes are read again", async () => {
    w = await World.start({ settings: { THALWEG_DATABASE_IDLE: "1s" } })
    const table = await w.table("id int PRIMARY KEY, n int", "(1, 1)")
    const shape = await w.synced({ table })
    await asleep()
    await w.sql(`ALTER TABLE ${table} ALTER COLUMN n TYPE int USING n * 100`)
    await w.agrees(shape, { within: 30000 })
    assert.equal(shape.refetches, 1)
  })

  test("has a kill -9 of the server in its sleep", async () => {
    w = await World.start({ settings: { THALWEG_DATABASE_IDLE: "1s" } })
    const table = await w.table(COLUMNS, "(1, 'a')")
    const shape = await w.synced({ table })
    await asleep()
    await w.sql(`INSERT INTO ${table} VALUES (2, 'b')`)
    await w.restart()
    shape.upToDate = false
    await w.agrees(shape, { within: 30000 })
    assert.equal(shape.refetches, 0)
  })
})

describe("a temporary slot", () => {
  test("goes with the server, and leaves no log behind; everything is read again", async () => {
    w = await World.start({ settings: { CLEANUP_REPLICATION_SLOTS_ON_SHUTDOWN: "true" } })
    const slots = () => w.sql("SELECT temporary FROM pg_replication_slots WHERE database = $1", [w.database])
    const table = await w.table(COLUMNS, "(1, 'a')", "(2, 'b')")
    const shape = await w.synced({ table })
    assert.deepEqual(await slots(), [{ temporary: "t" }])
    for (const signal of ["SIGTERM", "SIGKILL"]) {
      await w.kill(signal)
      await eventually(async () => (await slots()).length === 0, { what: "no slot" })
      await w.sql(`UPDATE ${table} SET t = '${signal}' WHERE id = 1`)
      await w.serve()
      shape.upToDate = false
      await w.agrees(shape, { within: 30000 })
      await w.sql(`INSERT INTO ${table} VALUES (${shape.refetches + 10}, 'later')`)
      await w.agrees(shape)
    }
    assert.equal(shape.refetches, 2)
  })

  test("takes the place of a lasting one, and the other way round", async () => {
    w = await World.start({})
    const table = await w.table(COLUMNS, "(1, 'a')")
    const shape = await w.synced({ table })
    for (const [setting, temporary] of [["on", "t"], ["off", "f"]]) {
      await w.kill()
      w.settings.THALWEG_REPLICATION_TEMPORARY_SLOT = setting
      await w.serve()
      assert.deepEqual(await w.sql("SELECT temporary FROM pg_replication_slots WHERE database = $1", [w.database]), [{ temporary }])
      await w.sql(`UPDATE ${table} SET t = t || '+'`)
      shape.upToDate = false
      await w.agrees(shape, { within: 30000 })
    }
  })
})

describe("settings that contradict each other end the start, in words that name them", () => {
  for (const [settings, words] of [
    [{ THALWEG_REPLICATION_TEMPORARY_SLOT: "on", THALWEG_REPLICATION_FAILOVER_SLOT: "on" }, /temporary-slot .*and --replication-failover-slot contradict/],
    [{ THALWEG_REPLICATION_TEMPORARY_SLOT: "on", THALWEG_DATABASE_IDLE: "10min" }, /temporary-slot .*and --database-idle contradict/],
    [{ ELECTRIC_DATABASE_CA_CERTIFICATE_FILE: "/nowhere/ca.pem" }, /ELECTRIC_DATABASE_CA_CERTIFICATE_FILE.*\/nowhere\/ca\.pem/],
  ])
    test(Object.keys(settings).join(" and "), async () => {
      w = await World.start({ serve: false, settings })
      await assert.rejects(w.serve(), (error) => words.test(error.message) || assert.fail(error.message))
    })

  test("a failover slot on a version that has none", async (t) => {
    w = await World.start({ serve: false, settings: { THALWEG_REPLICATION_FAILOVER_SLOT: "on" } })
    if (w.version >= 17) {
      // Nothing runs after a test that skips itself.
      await w.stop()
      w = undefined
      return t.skip("from Postgres 17 on there are some")
    }
    await w.serve({ ready: false })
    await eventually(() => /cannot keep a failover slot: 17 is the first version that can/.test(w.log()), { what: "the reason in the log" })
  })
})
