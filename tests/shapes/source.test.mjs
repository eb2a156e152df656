// What changes come from may become another history: another cluster, a standby that took over, a backup or older files put back, a slot
// that was made again. Positions, transaction ids and oids then mean something else.
//
// Nothing of the old history may stay, nothing of the new one be missed, and new shapes are made as ever: also after writes that follow, and
// after a restart of the server.

import assert from "node:assert/strict"
import { describe, test } from "node:test"
import { cluster, ownCluster, w, world } from "./support/own.mjs"
import { eventually } from "./support/world.mjs"

ownCluster({ wal_keep_size: "512MB", hot_standby_feedback: "on" })

const healthy = () => eventually(async () => (await w.request({}, { path: "/v1/health" })).status === 200, { within: 60000, what: "health" })

// A table of a fixed name, which another history may have too.
const create = (rows) =>
  w.sql(`CREATE TABLE items (id int PRIMARY KEY, t text); CREATE TABLE chosen (id int PRIMARY KEY); INSERT INTO chosen VALUES (1), (2), (3);
    INSERT INTO items VALUES ${rows}`)

const OF_CHOSEN = "id IN (SELECT id FROM chosen)"
const definitions = [{ table: "items" }, { table: "items", where: "t <> 'none'" }, { table: "items", where: OF_CHOSEN }]

const shapes = async () => {
  const all = []
  for (const params of definitions) all.push(await w.synced(params))
  return all
}

let count = 0
/** Everything is as it should be, and stays so. */
async function goesOn(all, what = "") {
  const agree = async (all) => {
    for (const shape of all) await w.agrees(shape, { within: 30000 })
  }
  await agree(all)
  for (const again of [false, true]) {
    if (again) await w.restart()
    const n = ++count
    await w.sql(`INSERT INTO items VALUES (${1000 + n}, '${what} ${n}'); UPDATE items SET t = t || '+' WHERE id < 5; DELETE FROM items WHERE id = ${1000 + n - 1};
      DELETE FROM chosen WHERE id = 2; INSERT INTO chosen VALUES (${1000 + n})`)
    await agree(all)
    const began = Date.now()
    const fresh = [await w.synced({ table: "items", where: `id > -${n}` }), await w.synced({ table: "items", where: `id > -${n} AND ${OF_CHOSEN}` })]
    assert.ok(Date.now() - began < 8000, "new shapes are made at once")
    await w.sql(`INSERT INTO items VALUES (${2000 + n}, 'later'); INSERT INTO chosen VALUES (2), (${2000 + n})`)
    await agree([...all, ...fresh])
  }
}

const switchWal = async (times = 4) => {
  for (let n = 0; n < times; n++) await w.sql("SELECT pg_switch_wal(); SELECT pg_logical_emit_message(true, 'more', repeat('x', 1000))")
}

describe("another cluster answers at the same address", () => {
  for (const stopped of [false, true])
    test(`with a shorter log, ${stopped ? "while the server is stopped" : "while it runs"}: nothing of the old one is told, everything of the new one`, async () => {
      await world()
      await create("(1, 'old'), (2, 'old'), (3, 'old')")
      const all = await shapes()
      await switchWal()
      await w.sql("UPDATE items SET t = 'older' WHERE id = 1")
      for (const shape of all) await w.agrees(shape)
      if (stopped) await w.kill()
      await cluster.stop()
      await cluster.make()
      await cluster.again()
      await cluster.sql(`CREATE DATABASE ${w.database}`)
      await w.reconnect()
      await create("(1, 'new'), (7, 'new')")
      if (stopped) await w.serve()
      await healthy()
      all.forEach((shape) => (shape.upToDate = false))
      await goesOn(all, "new")
      assert.ok(all.every((shape) => shape.refetches >= 1))
      assert.match(w.log(), /all shapes are dropped: the server is another one/)
    })
})

describe("the storage of the server is set back", () => {
  for (const stopped of [false, true])
    test(`${stopped ? "while the server is stopped" : "while it runs"}: rows that were lost go, and changes since come`, async () => {
      await world()
      await create("(1, 'a'), (2, 'b'), (3, 'c')")
      const all = await shapes()
      await cluster.keep()
      await w.reconnect()
      await healthy()
      for (let id = 60; id < 65; id++) await w.sql(`INSERT INTO items VALUES (${id}, 'lost'); SELECT pg_switch_wal()`)
      for (const shape of all) await w.agrees(shape)
      if (stopped) await w.kill()
      await cluster.setBack()
      await w.reconnect()
      await w.sql("INSERT INTO items VALUES (70, 'kept')")
      if (stopped) await w.serve()
      all.forEach((shape) => (shape.upToDate = false))
      await eventually(async () => /all shapes are dropped: .*storage was set back/.test(w.log()), { within: 30000, what: "a word about it" })
      await healthy()
      await goesOn(all, "set back")
    })

  test("and has written more since than was lost: the transaction that was read last does not come again", async () => {
    await world()
    await create("(1, 'a'), (2, 'b'), (3, 'c')")
    const all = await shapes()
    await cluster.keep()
    await w.reconnect()
    await healthy()
    await w.sql("INSERT INTO items VALUES (60, 'lost')")
    for (const shape of all) await w.agrees(shape)
    const read = await w.one("SELECT pg_current_wal_flush_lsn()")
    await eventually(async () => (await w.one("SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE database = $2", [read, w.database])) === "t")
    await w.kill()
    await cluster.setBack()
    await w.reconnect()
    await w.sql("INSERT INTO items VALUES (70, 'kept')")
    await switchWal()
    await w.sql("INSERT INTO items VALUES (71, 'kept')")
    await w.serve()
    all.forEach((shape) => (shape.upToDate = false))
    await eventually(async () => /all shapes are dropped: .*does not come again/.test(w.log()), { within: 30000, what: "a word about it" })
    await healthy()
    await goesOn(all, "grown")
  })
})

describe("a standby takes over", () => {
  test("that is behind: rows that it never had go, and changes since come", async () => {
    await world()
    await create("(1, 'a'), (2, 'b'), (3, 'c')")
    const all = await shapes()
    await cluster.standby()
    await w.reconnect()
    await cluster.stopStandby()
    await healthy()
    await w.sql("INSERT INTO items VALUES (60, 'lost'); UPDATE items SET t = 'lost' WHERE id = 1")
    for (const shape of all) await w.agrees(shape)
    await cluster.promoteStandby()
    await w.reconnect()
    await w.sql("INSERT INTO items VALUES (70, 'kept')")
    await eventually(async () => /all shapes are dropped: .*timeline/.test(w.log()), { within: 60000, what: "a word about it" })
    await healthy()
    await goesOn(all, "behind")
  })

  test("that has everything, but not the slot: everything is read anew", async () => {
    await world()
    await create("(1, 'a'), (2, 'b'), (3, 'c')")
    const all = await shapes()
    await cluster.standby()
    await w.reconnect()
    await healthy()
    await w.sql("INSERT INTO items VALUES (60, 'there')")
    for (const shape of all) await w.agrees(shape)
    await cluster.promoteStandby("fast")
    await w.reconnect()
    await w.sql("INSERT INTO items VALUES (70, 'kept')")
    await eventually(async () => /all shapes are dropped:/.test(w.log()), { within: 60000, what: "a word about it" })
    await healthy()
    await goesOn(all, "without slot")
  })
})

describe("the slot", () => {
  test("was made again by somebody while the server was stopped: what came in between is not missed", async () => {
    await world()
    await create("(1, 'a'), (2, 'b'), (3, 'c')")
    const all = await shapes()
    await w.kill()
    const slot = await w.one("SELECT slot_name FROM pg_replication_slots WHERE database = $1", [w.database])
    await eventually(async () => (await w.sql("SELECT pg_drop_replication_slot($1)", [slot])) && true)
    await w.sql("INSERT INTO items VALUES (60, 'between'); DELETE FROM items WHERE id = 1")
    await w.sql("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [slot])
    await w.serve()
    all.forEach((shape) => (shape.upToDate = false))
    await goesOn(all, "slot")
    assert.match(w.log(), /all shapes are dropped: the replication slot was advanced or created again/)
  })

  test("was moved on by somebody while the server was stopped: what was skipped is not missed", async () => {
    await world()
    await create("(1, 'a'), (2, 'b'), (3, 'c')")
    const all = await shapes()
    await w.kill()
    await w.sql("INSERT INTO items VALUES (60, 'skipped'); DELETE FROM items WHERE id = 1")
    await eventually(async () => (await w.sql("SELECT pg_replication_slot_advance(slot_name, pg_current_wal_flush_lsn()) FROM pg_replication_slots WHERE database = $1", [w.database])) && true)
    await w.serve()
    all.forEach((shape) => (shape.upToDate = false))
    await goesOn(all, "moved")
  })

  test("is kept over crashes of both servers, and nothing is read anew", async () => {
    await world()
    await create("(1, 'a'), (2, 'b'), (3, 'c')")
    const all = await shapes()
    for (let n = 0; n < 4; n++) {
      await w.sql(`INSERT INTO items VALUES (${100 + n}, 'x'); UPDATE items SET t = t || '${n}' WHERE id = 1`)
      if (n % 2) for (const shape of all) await w.agrees(shape)
      if (n !== 1) await w.kill()
      await cluster.stop(n === 2 ? "fast" : "immediate")
      await cluster.again()
      await w.reconnect()
      if (n !== 1) await w.serve()
      all.forEach((shape) => (shape.upToDate = false))
      for (const shape of all) await w.agrees(shape, { within: 30000 })
    }
    assert.deepEqual(all.map((shape) => shape.refetches), [0, 0, 0])
    await goesOn(all, "kept")
    assert.deepEqual(all.map((shape) => shape.refetches), [0, 0, 0])
  })
})

describe("a standby that keeps a copy of the slot", () => {
  test("takes over: shapes go on with their handles, and nothing is missed", async (t) => {
    if (Number(await cluster.sql("SHOW server_version_num").then((rows) => rows[0].server_version_num)) < 170000) return t.skip("from Postgres 17 on")
    await world({ settings: { THALWEG_REPLICATION_FAILOVER_SLOT: "on" } })
    await create("(1, 'a'), (2, 'b'), (3, 'c')")
    await cluster.sql("SELECT pg_create_physical_replication_slot('standby')")
    // Changes reach the server only when the standby has them.
    await cluster.sql("ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
    await cluster.standby({ primary_slot_name: "standby", sync_replication_slots: "on", hot_standby_feedback: "on" })
    await w.reconnect()
    await healthy()
    const all = await shapes()
    await w.sql("INSERT INTO items VALUES (60, 'there'); UPDATE items SET t = 'there' WHERE id = 1")
    for (const shape of all) await w.agrees(shape)
    const slot = `SELECT synced AND NOT temporary AND invalidation_reason IS NULL AS ready FROM pg_replication_slots WHERE database = '${w.database}'`
    await eventually(async () => (await cluster.sql(slot, { port: cluster.otherPort }))[0]?.ready, { within: 60000, what: "the copy of the slot" })
    await w.sql("INSERT INTO items VALUES (61, 'late'); DELETE FROM items WHERE id = 2")
    for (const shape of all) await w.agrees(shape)
    await cluster.promoteStandby()
    await cluster.sql("ALTER SYSTEM RESET synchronized_standby_slots; ")
    await cluster.sql("SELECT pg_reload_conf()")
    await w.reconnect()
    await w.sql("INSERT INTO items VALUES (70, 'kept')")
    for (const shape of all) await w.agrees(shape, { within: 60000 })
    assert.deepEqual(all.map((shape) => shape.refetches), [0, 0, 0])
    assert.doesNotMatch(w.log(), /shapes are dropped/)
    await goesOn(all, "copied")
    assert.deepEqual(all.map((shape) => shape.refetches), [0, 0, 0])
  })
})

describe("a file of certificates to trust (ELECTRIC_DATABASE_CA_CERTIFICATE_FILE)", () => {
  const tls = () => w.sql("SELECT DISTINCT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.application_name = 'thalweg' AND a.datname = $1", [w.database])

  test("makes every connection a verified one: another authority, another host and plain text are refused", async () => {
    await world({ serve: false })
    const [ours, theirs] = [await cluster.authority("ours"), await cluster.authority("theirs")]
    const address = w.url
    const attempt = async (file, host) => {
      w.settings.ELECTRIC_DATABASE_CA_CERTIFICATE_FILE = file
      w.url = address.replace("127.0.0.1", host)
      await w.serve({ ready: false })
    }
    const refused = async (words) => {
      await eventually(() => words.test(w.log().slice(w.read ?? 0)), { within: 30000, what: `${words} in the log` })
      assert.equal((await w.request({}, { path: "/v1/health" })).status, 202)
      assert.deepEqual(await tls(), [])
      await w.kill()
      w.read = w.log().length
    }
    await attempt(ours, "localhost")
    await refused(/does not offer/)
    await cluster.speakTls(ours, "localhost")
    await w.reconnect()
    await attempt(theirs, "localhost")
    await refused(/certificate/)
    await attempt(ours, "127.0.0.1")
    await refused(/certificate/)
    await attempt(ours, "localhost")
    await healthy()
    await create("(1, 'a')")
    const shape = await w.synced({ table: "items" })
    assert.deepEqual(await tls(), [{ ssl: "t" }])
    await w.sql("INSERT INTO items VALUES (2, 'b')")
    await w.agrees(shape)
    await w.kill()
    // An address that says otherwise is no way around it.
    for (const [mode, words] of [["sslmode=disable", /sslmode=disable/], ["sslrootcert=system", /sslrootcert/]]) {
      w.url = `${address}?${mode}`
      await assert.rejects(w.serve(), (error) => words.test(error.message) || assert.fail(error.message))
    }
    w.url = address
  })
})

describe("a commit that waits for a standby that is not there", () => {
  for (const again of [false, true])
    test(`is in no snapshot yet: a new shape ${again ? "after a restart of the server " : ""}is refused in time, and has the row later`, async () => {
      await world()
      await create("(1, 'a'), (2, 'b'), (3, 'c')")
      const shape = await w.synced({ table: "items" })
      const standbys = async (sql) => {
        await cluster.sql(`ALTER SYSTEM ${sql}`)
        await cluster.sql("SELECT pg_reload_conf()")
      }
      await standbys("SET synchronous_standby_names = 'nobody_there'")
      const other = await w.connection()
      await eventually(async () => (await other.query("SHOW synchronous_standby_names")).rows[0].synchronous_standby_names === "nobody_there")
      try {
        const commit = other.query("INSERT INTO items VALUES (50, 'waits')")
        await shape.until((s) => s.column("t").includes("waits"))
        if (again) await w.restart()
        const began = Date.now()
        const answer = await w.request({ table: "items", where: "id > -7", offset: "-1" })
        assert.ok(Date.now() - began < 60000, "an answer comes in time")
        assert.equal(answer.status, 503, answer.text)
        await standbys("RESET synchronous_standby_names")
        await commit
      } finally {
        await standbys("RESET synchronous_standby_names")
      }
      const fresh = await eventually(() => w.synced({ table: "items", where: "id > -7" }))
      for (const one of [shape, fresh]) await w.agrees(one, { within: 30000 })
      assert.ok(fresh.column("t").includes("waits"))
      await w.sql("INSERT INTO items VALUES (51, 'later')")
      for (const one of [shape, fresh]) await w.agrees(one)
      assert.equal(shape.refetches, 0)
    })
})
