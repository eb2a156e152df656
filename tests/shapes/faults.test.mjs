// Faults around the server, and the answers to its clients: one test for each, on a Postgres of its own.
//
// Nothing may be lost, whatever happens: every test ends by comparing shapes with what SELECT says. Where something is refused, the
// refusal says why, and when to come again. What fills disk or memory is in extremes.test.mjs; what else goes wrong between the server and
// Postgres in restart.test.mjs and ddl.test.mjs.

import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { cluster, ownCluster, w, world } from "./support/own.mjs"
import { clear, eventually } from "./support/world.mjs"

ownCluster()

describe("Postgres", () => {
  for (const mode of ["fast", "immediate"])
    test(`is stopped (${mode}) and comes back: reads go on, new shapes are refused, nothing is lost`, async () => {
      await world()
      const table = await w.table("id int PRIMARY KEY, n int", "(1, 1), (2, 2)")
      const shape = await w.synced({ table })
      await w.sql(`UPDATE ${table} SET n = 10 WHERE id = 1`)
      await w.agrees(shape)
      const waiting = w.request({ table, handle: shape.handle, offset: shape.offset, live: "true" })
      await cluster.stop(mode)
      await eventually(async () => (await w.request({}, { path: "/v1/health" })).body.status === "starting", { what: "a health that says so" })
      assert.equal((await waiting).status, 200, "who waits goes on waiting")
      const late = w.shape({ table })
      await late.step()
      assert.equal(late.rows.size, 2, "rows are read without Postgres")
      const ahead = { table, handle: shape.handle, offset: "99999999999999_0" }
      const told = await w.request(ahead)
      assert.deepEqual([told.status, /on their way/.test(told.text)], [503, true], "it may be an offset from before a crash")
      clear(await eventually(async () => {
        const answer = await w.request({ table, where: "n > 0", offset: "-1" })
        return answer.body?.code === "database_unreachable" && answer
      }), "database_unreachable", /unreachable/)
      assert.ok((await w.metric("shape_source_active")) === 0)
      await cluster.again()
      await w.reconnect()
      await w.sql(`INSERT INTO ${table} VALUES (3, 3)`)
      for (const one of [shape, late]) await w.agrees(one, { within: 30000 })
      assert.deepEqual([shape.refetches, late.refetches], [0, 0])
      assert.equal((await w.request(ahead)).status, 400, "it was none")
      await eventually(async () => (await w.request({ table, where: "n > 0", offset: "-1" })).status === 200, { within: 30000, what: "a new shape" })
    })

  test("has its slot dropped under the running server: everything is read anew", async () => {
    await world()
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    await eventually(async () => {
      await w.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1 AND active", [w.database])
      await w.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1", [w.database])
      return true
    })
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    await w.agrees(shape, { within: 30000 })
    assert.equal(shape.refetches, 1)
    assert.match(w.log(), /all shapes are dropped: the replication slot was dropped/)
  })

  test("gave up the slot, as the log that it kept was too long: everything is read anew", async () => {
    await world()
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    await w.kill()
    await cluster.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '16MB'; ")
    await cluster.sql("SELECT pg_reload_conf()")
    await eventually(async () => {
      await w.sql(`INSERT INTO ${table} SELECT coalesce(max(id), 0) + 1 FROM ${table}`)
      await w.sql("SELECT pg_switch_wal()")
      await w.sql("CHECKPOINT")
      return (await w.one("SELECT wal_status FROM pg_replication_slots WHERE database = $1", [w.database])) === "lost"
    }, { within: 30000, what: "a lost slot" })
    await cluster.sql("ALTER SYSTEM RESET max_slot_wal_keep_size")
    await cluster.sql("SELECT pg_reload_conf()")
    await w.serve()
    shape.upToDate = false
    await w.agrees(shape, { within: 30000 })
    assert.equal(shape.refetches, 1)
    assert.match(w.log(), /all shapes are dropped: Postgres no longer keeps what the replication slot needs/)
  })

  test("goes on under another timeline, with its slot: so do shapes", async () => {
    await world()
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    await cluster.failover()
    await w.reconnect()
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    await w.agrees(shape, { within: 60000 })
    const fresh = await w.synced({ table, where: "id > 0" })
    await w.restart()
    await w.sql(`INSERT INTO ${table} VALUES (3); DELETE FROM ${table} WHERE id = 1`)
    for (const one of [shape, fresh]) await w.agrees(one, { within: 30000 })
    assert.deepEqual([shape.refetches, fresh.refetches], [0, 0])
  })

  test("is another one at the same address (another system): nothing of the old one is told", async () => {
    await world()
    await w.sql("CREATE TABLE same (id int PRIMARY KEY, t text); INSERT INTO same VALUES (1, 'old'), (2, 'old')")
    const shape = await w.synced({ table: "same" })
    await cluster.stop()
    await cluster.make()
    await cluster.again()
    await cluster.sql(`CREATE DATABASE ${w.database}`)
    await w.reconnect()
    await w.sql("CREATE TABLE same (id int PRIMARY KEY, t text); INSERT INTO same VALUES (1, 'new')")
    await eventually(async () => (await w.request({}, { path: "/v1/health" })).status === 200, { within: 30000, what: "health" })
    await w.agrees(shape, { within: 30000 })
    assert.deepEqual(shape.column("t"), ["new"])
    assert.ok(shape.refetches >= 1)
    assert.match(w.log(), /all shapes are dropped: .*system/)
  })
})

describe("a table", () => {
  test("that is not there, or is none, is told so at once, live or not", async () => {
    await world()
    await w.sql("CREATE VIEW v AS SELECT 1 AS id")
    for (const [table, words] of [["nowhere", /Table "?public"?\."?nowhere"? does not exist/], ["no.where", /does not exist/], ["v", /not|view/i]])
      for (const params of [{ offset: "-1" }, { offset: "0_0", handle: "1-2", live: "true" }]) {
        const answer = await w.request({ table, ...params })
        assert.equal(answer.status, 400, `${table}: ${answer.text}`)
        assert.match(answer.body.errors.table[0], words)
      }
    assert.equal(await w.metric("shapes"), 0)
  })

  test("that the server may not read is refused by name, until it may", async () => {
    await world({ serve: false, settings: { ELECTRIC_MANUAL_TABLE_PUBLISHING: "true" } })
    const role = w.name("reader")
    await w.sql("CREATE SCHEMA hidden; CREATE TABLE hidden.t (id int PRIMARY KEY)")
    const [open, closed, part] = [await w.table("id int PRIMARY KEY", "(1)"), await w.table("id int PRIMARY KEY", "(1)"), await w.table("id int PRIMARY KEY, secret text", "(1, 'x')")]
    for (const name of [open, closed, part, "hidden.t"]) await w.sql(`ALTER TABLE ${name} REPLICA IDENTITY FULL`)
    await w.sql(`CREATE PUBLICATION thalweg_publication_${w.database} FOR TABLE ${open}, ${closed}, ${part}, hidden.t`)
    await w.sql(`CREATE ROLE ${role} LOGIN REPLICATION; GRANT CREATE ON DATABASE ${w.database} TO ${role}; GRANT SELECT ON ${open} TO ${role}; GRANT SELECT (id) ON ${part} TO ${role}`)
    const url = w.url
    w.url = url.replace("postgres@", `${role}@`)
    await w.serve()
    const shape = await w.synced({ table: open })
    for (const table of [closed, part]) {
      const answer = await w.request({ table, offset: "-1" })
      assert.equal(answer.status, 400, answer.text)
      assert.deepEqual(answer.body.errors.table, [`permission denied for table ${table} (42501)`])
    }
    const hidden = await w.request({ table: "hidden.t", offset: "-1" })
    assert.equal(hidden.status, 400, hidden.text)
    assert.match(hidden.text, /permission denied for schema hidden|does not exist/)
    // Columns that may be read can be asked for.
    assert.equal((await w.synced({ table: part, columns: "id" })).rows.size, 1)
    // Also by a condition, which would reveal values that it may not see.
    assert.equal((await w.request({ table: part, columns: "id", where: "secret = 'x'", offset: "-1" })).status, 400)
    // Rights granted later work without a restart; revoked ones are refused for new shapes.
    await w.sql(`GRANT SELECT ON ${closed} TO ${role}; REVOKE SELECT ON ${open} FROM ${role}`)
    await eventually(async () => (await w.request({ table: closed, offset: "-1" })).status === 200)
    assert.equal((await w.request({ table: open, where: "id > 0", offset: "-1" })).status, 400)
    await w.sql(`INSERT INTO ${open} VALUES (2)`)
    await w.agrees(shape)
    w.url = url
    await w.kill()
    await w.sql(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`)
  })
})

describe("a where clause", () => {
  // Every stage that can refuse: words, grammar, names, types, constants, parameters, unsupported features, size, depth, and rows.
  const FAULTS = [
    ["an unfinished text", "t = 'x", /a quoted text is not ended/],
    ["a character of no language", "t = {", /"\{"/],
    ["bad grammar", "t = AND n", /^At location 19: syntax error at or near "AND"$/],
    ["two conditions", "true; true", /statement split/],
    ["an unknown column", "nope = 1", /^At location 15: column "nope" does not exist$/],
    ["another table's column", "other.id = 1", /missing FROM-clause entry for table "other"/],
    ["an unknown function", "frobnicate(n) = 1", /function frobnicate\(integer\) does not exist/],
    ["an unknown operator", "n ~~~~ 1", /operator does not exist: integer ~~~~ integer/],
    ["an unknown type", "n::frob = 1", /type "frob" does not exist/],
    ["operands of the wrong type", "n = true", /operator does not exist: integer = boolean/],
    ["no condition at all", "n + 1", /must be type boolean, not type integer/],
    ["a constant of another type", "n = 'abc'", /invalid input syntax for type integer: "abc"/],
    ["a constant that is too large", "n = '99999999999'", /out of range for type integer/],
    ["a constant of no date", "d = '2024-02-30'", /date\/time field value out of range: "2024-02-30"/],
    ["a byte that no text has", "t = E'\\x00'", /invalid byte sequence for encoding "UTF8": 0x00/],
    ["a missing parameter", "n = $1", /parameter \$1 was not provided/],
    ["an aggregate", "count(*) > 1", /aggregate functions are not allowed in WHERE/],
    ["a window", "row_number() OVER () = 1", /window functions are not allowed in WHERE/],
    ["a function of the moment", "now() > '2024-01-01'", /unsupported function: now/],
    ["a function that waits", "pg_sleep(1) IS NULL", /unsupported function: pg_sleep/],
    ["a sub-query of an unknown table", "n IN (SELECT id FROM nowhere)", /relation "nowhere" does not exist/],
    ["a sub-query of another kind", "EXISTS (SELECT 1)", /EXISTS is not supported/],
    ["too long a text", `t = '${"x".repeat(70_000)}'`, /65536|64 KiB/],
    ["too deep a nesting", "(".repeat(5000) + "true" + ")".repeat(5000), /deep|nest/],
  ]
  test(`with one of ${FAULTS.length} faults is refused in words that name it`, async (t) => {
    await world()
    const table = await w.table("id int PRIMARY KEY, n int, t text, d date", "(1, 1, 'a', '2024-01-01')")
    const wrong = []
    for (const [what, where, words] of FAULTS) {
      const long = where.length > 8000
      const body = JSON.stringify({ where })
      const options = long ? { method: "POST", headers: { "content-type": "application/json" }, body } : {}
      const answer = await w.request({ table, offset: "-1", where: long ? undefined : where }, options)
      const complaint = answer.body?.errors?.where?.[0] ?? answer.text
      if (answer.status !== 400 || answer.body.message !== "Invalid request" || !words.test(complaint)) wrong.push(`${what}: ${answer.status} ${complaint.slice(0, 200)}`)
      t.diagnostic(`${what}: ${complaint.slice(0, 120)}`)
    }
    assert.deepEqual(wrong, [])
    assert.ok((await w.metric("shapes")) <= 1, "none of them left anything but the table whose subsets were asked for")
    assert.equal((await w.request({ table, offset: "-1" })).status, 200)
  })

  test("that a row makes fail: refused if the row is there, and if it comes later the row does not belong to the shape", async () => {
    await world()
    const table = await w.table("id int PRIMARY KEY, n int", "(1, 5), (2, 0)")
    const where = "10 / n > 1"
    const answer = await w.request({ table, offset: "-1", where })
    assert.equal(answer.status, 400, answer.text)
    assert.match(answer.body.errors.where[0], /division by zero/)
    await w.sql(`UPDATE ${table} SET n = 1 WHERE id = 2`)
    const shape = await w.synced({ table, where })
    // Postgres would refuse the whole query now; the others go on as if the row were not there.
    await w.sql(`INSERT INTO ${table} VALUES (3, 0), (4, 2); UPDATE ${table} SET n = 0 WHERE id = 1`)
    await shape.until((s) => s.column("id").join() === "2,4")
    await w.sql(`UPDATE ${table} SET n = 3 WHERE n = 0`)
    await w.agrees(shape)
    assert.deepEqual([shape.rows.size, shape.refetches], [4, 0])
  })
})
