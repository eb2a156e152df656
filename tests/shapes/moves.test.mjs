// Rows of subqueries while Postgres is slow, locked, out of reach or in disorder, and while the server is killed: what cannot be had waits
// alone, and what a shape is told fits what it was told before (the client refuses anything else).

import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { cluster, ownCluster, w, world } from "./support/own.mjs"
import { Proxy } from "./support/proxy.mjs"
import { eventually, sleep } from "./support/world.mjs"

ownCluster()

/** A world whose queries go through one proxy, and whose changes through another. */
async function through(settings = {}) {
  await world({ serve: false })
  const [queries, changes] = [await Proxy.start(w.url), await Proxy.start(w.url)]
  w.stops.push(() => queries.stop(), () => changes.stop())
  const direct = w.url
  Object.assign(w.settings, { DATABASE_URL: changes.url, THALWEG_QUERY_DATABASE_URL: queries.url }, settings)
  await w.serve()
  return { queries, changes, direct }
}

/** Parents with a flag, children that ask for those that are `on`, and a table that has nothing to do with them. */
async function family() {
  const [parent, child] = [await w.table("id int PRIMARY KEY, flag bool NOT NULL, t text"), await w.table("id int PRIMARY KEY, parent int, t text")]
  await w.sql(`INSERT INTO ${parent} SELECT n, n % 2 = 0, '' FROM generate_series(1, 10) n; INSERT INTO ${child} SELECT n, n % 10 + 1, '' FROM generate_series(1, 40) n`)
  const other = await w.table("id int PRIMARY KEY, t text", "(1, 'a')")
  const [some, rest, plain] = [
    await w.synced({ table: child, where: `parent IN (SELECT id FROM ${parent} WHERE flag)` }),
    await w.synced({ table: child, where: `parent NOT IN (SELECT id FROM ${parent} WHERE flag)` }),
    await w.synced({ table: other }),
  ]
  return { parent, child, other, some, rest, plain }
}

/** The plain shape gets a change as soon as before. */
async function goesOn({ other, plain }) {
  const began = Date.now()
  const id = 2 + Math.floor(Math.random() * 1e9)
  await w.sql(`INSERT INTO ${other} VALUES (${id}, 'b')`)
  await plain.until((shape) => shape.column("id").includes(`${id}`), { within: 3000 })
  assert.ok(Date.now() - began < 3000, `${Date.now() - began} ms`)
}

/** The same as `agrees`, of a shape that a server may have to make again, and cannot at once. */
async function agreesAgain(shape) {
  for (const end = Date.now() + 40000; ; ) {
    try {
      return await w.agrees(shape)
    } catch (error) {
      if (!error.message.startsWith("503") || Date.now() > end) throw error
      await sleep(100)
    }
  }
}

const active = async () => (await w.request({}, { path: "/v1/health" })).body.status === "active"

describe("the first rows of an inner query", () => {
  test("are followed by what was written while they were read, after kill -9 as before it", async () => {
    const { queries } = await through()
    const inner = await w.table("id text PRIMARY KEY, v int, keep bool NOT NULL")
    await w.sql(`INSERT INTO ${inner} VALUES ('one', 1, true), ('two', 2, true), ('three', 3, true), ('hold here', 4, true)`)
    const outer = await w.table("id int PRIMARY KEY, v int")
    await w.sql(`INSERT INTO ${outer} SELECT n, n FROM generate_series(1, 9) n`)
    const where = `v NOT IN (SELECT v FROM ${inner} WHERE keep)`
    queries.holds = (message) => message.includes("hold here")
    const shape = w.shape({ table: outer, where })
    const first = shape.sync()
    await eventually(() => queries.held === 1, { what: "a snapshot that is being read" })
    await w.sql(`INSERT INTO ${inner} VALUES ('five', 5, true), ('six', 6, false); UPDATE ${inner} SET v = 7 WHERE id = 'one'; DELETE FROM ${inner} WHERE id = 'two'; UPDATE ${inner} SET keep = false WHERE id = 'three'`)
    // It was applied before the rows are here.
    const done = await w.synced({ table: inner, where: "id = 'five'" })
    assert.equal(done.rows.size, 1)
    queries.release()
    await first
    await w.agrees(shape)
    assert.deepEqual(shape.column("v"), ["1", "2", "3", "6", "8", "9"])
    await w.restart()
    await w.sql(`DELETE FROM ${outer} WHERE v = 5; DELETE FROM ${outer} WHERE v = 1; UPDATE ${outer} SET v = 5 WHERE v = 2; UPDATE ${inner} SET keep = true WHERE id = 'six'; INSERT INTO ${outer} VALUES (10, 3), (11, 7)`)
    shape.upToDate = false
    await w.agrees(shape)
    assert.equal(shape.refetches, 0, "a start brings it back")
  })
})

describe("rows that come", () => {
  test("wait for a table that is locked, and nothing else does", async () => {
    await world()
    const all = await family()
    const { parent, child, some, rest } = all
    const locker = await w.connection()
    await locker.query(`BEGIN; LOCK TABLE ${child} IN ACCESS EXCLUSIVE MODE`)
    // Each brings rows into one of the shapes: far more than there are connections.
    for (let round = 0; round < 12; round++) {
      await w.sql(`UPDATE ${parent} SET flag = NOT flag WHERE id <= 5`)
      await goesOn(all)
    }
    await w.sql(`UPDATE ${parent} SET flag = id > 5`)
    await goesOn(all)
    assert.ok(await active())
    // Other shapes of subqueries continue too.
    const [owner, owned] = [await w.table("id int PRIMARY KEY, flag bool NOT NULL", "(1, true), (2, false)"), await w.table("id int PRIMARY KEY, owner int", "(1, 1), (2, 2)")]
    const free = await w.synced({ table: owned, where: `owner IN (SELECT id FROM ${owner} WHERE flag)` })
    await w.sql(`UPDATE ${owner} SET flag = true`)
    await w.agrees(free)
    await locker.query("COMMIT")
    for (const shape of [some, rest]) await w.agrees(shape, { within: 30000 })
    await w.sql(`UPDATE ${parent} SET flag = NOT flag; UPDATE ${child} SET parent = parent % 10 + 1; DELETE FROM ${child} WHERE id % 7 = 0`)
    for (const shape of [some, rest, free]) await w.agrees(shape, { within: 30000 })
    assert.deepEqual([some.refetches, rest.refetches, free.refetches, all.plain.refetches], [0, 0, 0, 0])
  })

  test("wait for a database that takes no questions, while its changes come", async () => {
    const { queries } = await through()
    const all = await family()
    const { parent, child, some, rest } = all
    queries.close()
    for (let round = 0; round < 5; round++) {
      await w.sql(`UPDATE ${parent} SET flag = NOT flag; UPDATE ${child} SET t = t || 'x' WHERE id % 5 = ${round}`)
      await goesOn(all)
    }
    const told = await w.request({ table: child, where: "id < 3", offset: "-1" })
    assert.deepEqual([told.status, told.body.code], [503, "database_unreachable"])
    queries.open()
    for (const shape of [some, rest]) await w.agrees(shape, { within: 30000 })
    await w.sql(`UPDATE ${parent} SET flag = id < 4; INSERT INTO ${child} SELECT n, n % 10 + 1, '' FROM generate_series(41, 60) n`)
    for (const shape of [some, rest]) await w.agrees(shape, { within: 30000 })
    assert.deepEqual([some.refetches, rest.refetches], [0, 0])
  })

  test("wait for a password that was changed, while changes come", async () => {
    await world({ serve: false })
    const role = w.name("asker")
    await w.sql(`CREATE ROLE ${role} LOGIN SUPERUSER PASSWORD 'old'`)
    const asked = new URL(w.url)
    asked.username = role
    asked.password = "old"
    await cluster.only(role, "scram-sha-256")
    Object.assign(w.settings, { THALWEG_QUERY_DATABASE_URL: asked.href })
    await w.serve()
    const all = await family()
    const { parent, some, rest } = all
    await w.sql(`ALTER ROLE ${role} PASSWORD 'new'; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '${role}'`)
    await w.sql(`UPDATE ${parent} SET flag = NOT flag`)
    for (let round = 0; round < 5; round++) await goesOn(all)
    assert.ok(await active())
    await w.sql(`ALTER ROLE ${role} PASSWORD 'old'`)
    for (const shape of [some, rest]) await w.agrees(shape, { within: 30000 })
    await w.sql(`UPDATE ${parent} SET flag = NOT flag WHERE id < 6`)
    for (const shape of [some, rest]) await w.agrees(shape, { within: 30000 })
    assert.deepEqual([some.refetches, rest.refetches], [0, 0])
    await w.kill()
    await w.sql(`DROP ROLE ${role}`)
  })

  test("end on a connection that is lost in the middle of them, and are asked for again or the shape is", async () => {
    const { queries } = await through()
    const all = await family()
    const { parent, child, some, rest } = all
    for (const marker of ["first marker", "second marker"]) {
      await w.sql(`UPDATE ${child} SET t = '${marker}' WHERE id = 13`)
      for (const shape of [some, rest]) await w.agrees(shape)
      queries.holds = (message) => message.includes(marker)
      await w.sql(`UPDATE ${parent} SET flag = NOT flag`)
      await eventually(() => queries.held === 1, { what: "rows that are being fetched" })
      await goesOn(all)
      queries.holds = () => false
      queries.close()
      queries.open()
      for (const shape of [some, rest]) await agreesAgain(shape)
    }
    assert.equal(all.plain.refetches, 0)
  })

  test("of a new partition: what it is part of is asked for, and not waited for without end", async () => {
    const { queries } = await through()
    const all = await family()
    const whole = w.name("whole")
    await w.sql(`CREATE TABLE ${whole} (id int, t text, PRIMARY KEY (id)) PARTITION BY RANGE (id); CREATE TABLE ${whole}_1 PARTITION OF ${whole} FOR VALUES FROM (0) TO (10)`)
    const shape = await w.synced({ table: whole })
    await w.sql(`INSERT INTO ${whole} VALUES (1, 'a'); CREATE TABLE ${whole}_2 PARTITION OF ${whole} FOR VALUES FROM (10) TO (20); ALTER TABLE ${whole}_2 REPLICA IDENTITY FULL; INSERT INTO ${whole} VALUES (11, 'b')`)
    await w.agrees(shape)
    assert.equal(shape.refetches, 0)
    queries.close()
    await w.sql(`CREATE TABLE ${whole}_3 PARTITION OF ${whole} FOR VALUES FROM (20) TO (30); ALTER TABLE ${whole}_3 REPLICA IDENTITY FULL; INSERT INTO ${whole} VALUES (21, 'c')`)
    await goesOn(all)
    queries.open()
    await agreesAgain(shape)
    await w.sql(`INSERT INTO ${whole} VALUES (22, 'd'), (2, 'e')`)
    await w.agrees(shape)
  })
})

describe("transactions that become visible in another order than they commit in", () => {
  // Without a standby that says so a commit is in the log, and sent, but not visible; others need not wait for the standby.
  const disorder = async (hidden, visible) => {
    const reset = async () => {
      await cluster.sql("ALTER SYSTEM RESET synchronous_standby_names")
      await cluster.sql("SELECT pg_reload_conf()")
    }
    const [late, early] = [await w.connection(), await w.connection()]
    w.stops.push(reset)
    await cluster.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    await cluster.sql("SELECT pg_reload_conf()")
    await eventually(async () => (await late.query("SHOW synchronous_standby_names")).rows[0].synchronous_standby_names === "nobody")
    await late.query("SET synchronous_commit = on")
    await early.query("SET synchronous_commit = local")
    const hangs = late.query(hidden)
    await eventually(async () => Number((await early.query("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")).rows[0].count) >= 1, { what: "a commit that hangs" })
    await early.query(visible)
    return {
      early,
      show: async () => {
        await reset()
        await hangs
      },
    }
  }

  /** Holds the transaction after the one with this text: the first bytes of its beginning. */
  const nextBegin = (text) => {
    let seen = false
    return (message) => (seen ||= message.includes(text)) && message[0] === "d" && message[5] === "w" && message[30] === "B"
  }
  const applied = () => w.metric("shape_transactions_total")

  test("no shape begins between them", async () => {
    const { changes, queries } = await through()
    const { parent, child } = await family()
    const params = { table: child, where: `parent NOT IN (SELECT id FROM ${parent} WHERE flag) AND id > 0` }
    // Nothing is applied before the snapshot is taken.
    changes.holds = nextBegin("")
    const { early, show } = await disorder(
      `BEGIN; INSERT INTO ${child} VALUES (100, 2, 'hidden one'); DELETE FROM ${child} WHERE parent = 1; COMMIT`,
      `UPDATE ${parent} SET flag = true, t = 'visible one' WHERE id = 1`,
    )
    await eventually(() => changes.held === 1, { what: "a stream that is held" })
    const before = await applied()
    let copied = false
    queries.holds = (message) => ((copied ||= message[0] === "c"), false)
    const shape = w.shape(params)
    const first = shape.sync()
    let begun = false
    first.then(() => (begun = true), () => {})
    await eventually(() => copied, { what: "rows that were read" })
    // Its rows are of a moment that the stream has not: it is not shown beside it, and if it were, changes would not fit.
    await eventually(() => begun, { within: 2000 }).catch(() => {})
    changes.release(nextBegin("hidden one"))
    await eventually(async () => (await applied()) > before, { what: "a transaction that is applied" })
    if (begun) await shape.live({ within: 2000 })
    await show()
    changes.release()
    await first.catch((error) => assert.match(error.message, /503/))
    await agreesAgain(shape)
    await early.query(`SET synchronous_commit = on; UPDATE ${parent} SET flag = id % 3 = 0; UPDATE ${child} SET parent = parent % 10 + 1`)
    await w.agrees(shape, { within: 30000 })
  })

  test("no rows come between them", async () => {
    const { changes, queries } = await through()
    const { parent, child, some, rest } = await family()
    const turn = (message) => message.includes("turn of three")
    changes.holds = turn
    await w.sql(`UPDATE ${parent} SET flag = true, t = 'turn of three' WHERE id = 3`)
    await eventually(() => changes.held === 1, { what: "a stream that is held" })
    const { early, show } = await disorder(
      `BEGIN; UPDATE ${parent} SET t = 'hidden one' WHERE id = 9; DELETE FROM ${child} WHERE id = 33; COMMIT`,
      `DELETE FROM ${child} WHERE parent = 3 AND id < 20; INSERT INTO ${child} VALUES (102, 3, 'visible one')`,
    )
    // The rows are read when the visible transactions have committed, and the hidden ones have not.
    let copies = 0
    queries.holds = (message) => (copies += message[0] === "H") < 0
    changes.release(nextBegin("turn of three"))
    await eventually(() => copies >= 1, { what: "rows that are read" })
    changes.release(nextBegin("hidden one"))
    // Told beside the hidden one, the rows would not fit what the visible one does.
    for (let n = 0; n < 3; n++) await some.live({ within: 500 })
    await show()
    changes.release()
    for (const shape of [some, rest]) await agreesAgain(shape)
    await early.query(`SET synchronous_commit = on; UPDATE ${parent} SET flag = NOT flag; UPDATE ${child} SET parent = parent % 10 + 1`)
    for (const shape of [some, rest]) await w.agrees(shape, { within: 30000 })
  })
})
