// Conditions on other tables: rows come and go as those change.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { World, eventually } from "./support/world.mjs"

let w
before(async () => (w = await World.start()))
after(() => w?.stop())

const HASH = /^[0-9a-f]{32}$/
async function family({ parents = "(1, 1), (2, 2)", children = "(1, 1, 10), (2, 2, 20)" } = {}) {
  const parent = await w.table("id int PRIMARY KEY, value int")
  const child = await w.table("id int PRIMARY KEY, parent_id int, value int")
  await w.sql(`INSERT INTO ${parent} VALUES ${parents}; INSERT INTO ${child} VALUES ${children}`)
  return { parent, child, where: `parent_id IN (SELECT id FROM ${parent} WHERE value = 1)` }
}
const events = (messages) => messages.filter((message) => message.headers.event)
const rows = (messages) => messages.filter((message) => message.key)

describe("one sub-query", () => {
  test("chooses rows, which say why they are here", async () => {
    const { child, where } = await family()
    const shape = await w.synced({ table: child, where })
    assert.deepEqual(shape.values(), [{ id: "1", parent_id: "1", value: "10" }])
    const { headers } = shape.log[0]
    assert.equal(headers.tags.length, 1)
    assert.match(headers.tags[0], HASH)
    assert.deepEqual(headers.active_conditions ?? [true], [true])
  })

  test("rows that are written later are tagged alike", async () => {
    const { child, where } = await family()
    const shape = w.shape({ table: child, where })
    const [come] = await shape.changes(() => w.sql(`INSERT INTO ${child} VALUES (3, 1, 30), (4, 2, 40)`))
    assert.equal(come.value.id, "3")
    assert.deepEqual(come.headers.tags, shape.log[0].headers.tags)
    const changed = await shape.changes(() => w.sql(`UPDATE ${child} SET value = 31 WHERE id = 3`))
    assert.equal(changed[0].headers.operation, "update")
    assert.deepEqual(changed[0].value, { id: "3", value: "31" })
  })

  test("a move-out is one message, with the tag and the transaction", async () => {
    const { parent, child, where } = await family()
    const shape = await w.synced({ table: child, where })
    const tag = shape.log[0].headers.tags[0]
    let xid
    const [event] = await shape.changes(async () => {
      xid = await w.one(`UPDATE ${parent} SET value = 3 WHERE id = 1 RETURNING xmin`)
    })
    assert.deepEqual(event, { headers: { event: "move-out", patterns: [{ pos: 0, value: tag }], txids: [Number(xid)] } })
    assert.equal(shape.rows.size, 0)
  })

  test("a move-in brings its rows, and the end of their snapshot", async () => {
    const { parent, child, where } = await family()
    const shape = await w.synced({ table: child, where })
    let xid
    const from = shape.log.length
    await shape.changes(async () => {
      xid = await w.one(`UPDATE ${parent} SET value = 1 WHERE id = 2 RETURNING xmin`)
    }, 2)
    const [event, row, end, upToDate] = shape.log.slice(from)
    assert.equal(event.headers.event, "move-in")
    assert.deepEqual(event.headers.txids, [Number(xid)])
    assert.deepEqual(row.value, { id: "2", parent_id: "2", value: "20" })
    assert.equal(row.headers.operation, "insert")
    assert.equal(row.headers.is_move_in, true)
    assert.match(row.headers.tags[0], HASH)
    assert.notEqual(row.headers.tags[0], shape.log[0].headers.tags[0])
    assert.deepEqual(event.headers.patterns, [{ pos: 0, value: row.headers.tags[0] }])
    assert.equal(end.headers.control, "snapshot-end")
    assert.equal(upToDate.headers.control, "up-to-date")
  })

  test("a parent that comes and goes is followed", async () => {
    const { parent, child, where } = await family()
    const shape = await w.synced({ table: child, where })
    for (const sql of [
      `INSERT INTO ${parent} VALUES (3, 1); INSERT INTO ${child} VALUES (5, 3, 50)`,
      `DELETE FROM ${parent} WHERE id = 1`,
      `UPDATE ${parent} SET id = 1 WHERE id = 3`,
      `BEGIN; UPDATE ${parent} SET value = 1; UPDATE ${child} SET parent_id = 2 WHERE id = 5; COMMIT`,
      `UPDATE ${child} SET parent_id = 1`,
      `UPDATE ${child} SET parent_id = 99 WHERE id = 1`,
      `DELETE FROM ${parent}`,
    ]) {
      await w.sql(sql)
      await w.agrees(shape)
    }
    const late = await w.synced({ table: child, where })
    assert.equal(late.handle, shape.handle)
    await w.agrees(late)
  })

  test("back and forth in quick order ends right", async () => {
    const { parent, child, where } = await family()
    const shape = await w.synced({ table: child, where })
    for (let i = 0; i < 20; i++) await w.sql(`UPDATE ${parent} SET value = ${i % 2} WHERE id = ${1 + (i % 3 === 0)}`)
    await w.sql(`BEGIN; UPDATE ${parent} SET value = 1; UPDATE ${parent} SET value = 0; UPDATE ${parent} SET value = 1 WHERE id = 2; COMMIT`)
    await w.agrees(shape)
    await w.agrees(await w.synced({ table: child, where }))
  })

  test("a row that changes its parent keeps its place if both fit", async () => {
    const { child, where } = await family({ parents: "(1, 1), (2, 1)" })
    const shape = await w.synced({ table: child, where })
    const [change] = await shape.changes(() => w.sql(`UPDATE ${child} SET parent_id = 2 WHERE id = 1`))
    assert.equal(change.headers.operation, "update")
    assert.equal(change.headers.removed_tags?.length, 1)
    assert.notDeepEqual(change.headers.tags, change.headers.removed_tags)
    await w.agrees(shape)
  })

  test("many rows move in at once", async () => {
    const { parent, child, where } = await family()
    const shape = await w.synced({ table: child, where })
    await w.sql(`INSERT INTO ${child} SELECT i, 2, i FROM generate_series(100, 5000) i`)
    await w.sql(`UPDATE ${parent} SET value = 1 WHERE id = 2`)
    await w.sql(`UPDATE ${child} SET value = value + 1 WHERE id % 100 = 0`)
    await w.agrees(shape)
    assert.equal(shape.rows.size, 4903)
  })

  test("replica=full and columns apply", async () => {
    const { parent, child, where } = await family()
    const full = await w.synced({ table: child, where, replica: "full" })
    const some = await w.synced({ table: child, where, columns: "id,value" })
    await w.sql(`UPDATE ${parent} SET value = 1 WHERE id = 2`)
    await w.sql(`UPDATE ${child} SET value = value + 1, parent_id = 2`)
    await w.agrees(full)
    await w.agrees(some, { columns: "id, value" })
    await w.sql(`UPDATE ${parent} SET value = 0 WHERE id = 2`)
    await full.until((s) => s.rows.size === 0)
    await some.until((s) => s.rows.size === 0)
  })
})

describe("other forms", () => {
  async function follows(where, { parents, children, steps, table = "child" }) {
    const names = await family({ parents, children })
    const spelled = where(names)
    const shape = await w.synced({ table: names[table], ...spelled })
    await w.agrees(shape)
    for (const step of steps(names)) {
      await w.sql(step)
      await w.agrees(shape)
    }
    await w.agrees(await w.synced({ table: names[table], ...spelled }))
    return shape
  }
  const steps = ({ parent, child }) => [
    `UPDATE ${parent} SET value = 1 WHERE id = 2`,
    `UPDATE ${child} SET value = value + 1`,
    `UPDATE ${parent} SET value = 5 WHERE id = 1`,
    `INSERT INTO ${child} VALUES (3, 1, 30), (4, 2, 15), (5, 3, 0), (6, NULL, 10)`,
    `INSERT INTO ${parent} VALUES (3, 1)`,
    `UPDATE ${child} SET parent_id = 3 WHERE id = 1`,
    `DELETE FROM ${parent} WHERE id = 2`,
    `UPDATE ${child} SET value = 10`,
    `DELETE FROM ${child} WHERE id = 1`,
  ]

  test("NOT IN", () => follows(({ parent }) => ({ where: `parent_id NOT IN (SELECT id FROM ${parent} WHERE value = 1)` }), { steps }))
  test("NOT of IN", () => follows(({ parent }) => ({ where: `NOT (parent_id IN (SELECT id FROM ${parent} WHERE value = 1))` }), { steps }))
  test("with AND", () => follows(({ parent }) => ({ where: `parent_id IN (SELECT id FROM ${parent} WHERE value = 1) AND value > 10` }), { steps }))
  test("with OR", () => follows(({ parent }) => ({ where: `parent_id IN (SELECT id FROM ${parent} WHERE value = 1) OR value = 10` }), { steps }))
  test("with OR, first the other", () => follows(({ parent }) => ({ where: `value = 10 OR parent_id IN (SELECT id FROM ${parent} WHERE value = 1)` }), { steps }))
  test("two of them", () => follows(({ parent }) => ({ where: `parent_id IN (SELECT id FROM ${parent} WHERE value = 1) OR value IN (SELECT value FROM ${parent})` }), { steps }))
  test("two of them with AND", () => follows(({ parent }) => ({ where: `parent_id IN (SELECT id FROM ${parent} WHERE value = 1) AND id IN (SELECT id FROM ${parent})` }), { steps }))
  test("without a condition of its own", () => follows(({ parent }) => ({ where: `parent_id IN (SELECT id FROM ${parent})` }), { steps }))
  test("of another column", () => follows(({ parent }) => ({ where: `id IN (SELECT value FROM ${parent})` }), { steps }))
  test("with parameters inside and outside", () => follows(({ parent }) => ({ where: `parent_id IN (SELECT id FROM ${parent} WHERE value = $2) AND value >= $1`, params: { 1: "10", 2: "1" } }), { steps }))
  test("of the table itself", () => follows(({ child }) => ({ where: `id IN (SELECT parent_id FROM ${child} WHERE value > 10)` }), { steps }))

  test("OR: a row that is here for two reasons stays for the other", async () => {
    const { parent, child } = await family({ children: "(1, 1, 10)" })
    const where = `parent_id IN (SELECT id FROM ${parent} WHERE value = 1) OR value = 10`
    const shape = await w.synced({ table: child, where })
    const { tags, active_conditions } = shape.log[0].headers
    assert.equal(tags.length, 2)
    assert.match(tags[0], /^[0-9a-f]{32}\/$/)
    assert.equal(tags[1], "/1")
    assert.deepEqual(active_conditions, [true, true])
    const out = await shape.changes(() => w.sql(`UPDATE ${parent} SET value = 2 WHERE id = 1`))
    assert.equal(events(out)[0].headers.event, "move-out")
    assert.equal(rows(out).length, 0)
    assert.equal(shape.rows.size, 1)
    const back = await shape.changes(() => w.sql(`UPDATE ${parent} SET value = 1 WHERE id = 1`))
    assert.equal(events(back)[0].headers.event, "move-in")
    await w.sql(`UPDATE ${child} SET value = 11`)
    await w.agrees(shape)
    await w.sql(`UPDATE ${parent} SET value = 2`)
    await w.agrees(shape)
    assert.equal(shape.rows.size, 0)
  })

  test("nested three deep", async () => {
    const top = await w.table("id int PRIMARY KEY, value int", "(1, 10)", "(2, 20)")
    const parent = await w.table("id int PRIMARY KEY, top_id int", "(1, 1)", "(2, 2)")
    const child = await w.table("id int PRIMARY KEY, parent_id int", "(1, 1)", "(2, 2)")
    const where = `parent_id IN (SELECT id FROM ${parent} WHERE top_id IN (SELECT id FROM ${top} WHERE value = 10))`
    const shape = await w.synced({ table: child, where })
    assert.deepEqual(shape.column("id"), ["1"])
    for (const sql of [`UPDATE ${top} SET value = 10 WHERE id = 2`, `UPDATE ${parent} SET top_id = 1`, `UPDATE ${top} SET value = 20`, `UPDATE ${top} SET value = 10 WHERE id = 1`]) {
      await w.sql(sql)
      await w.agrees(shape)
    }
  })

  test("of several columns", async () => {
    const members = await w.table("user_id int, team_id int, flag bool, PRIMARY KEY (user_id, team_id)", "(1, 1, true)", "(2, 2, false)")
    const details = await w.table("id int PRIMARY KEY, user_id int, team_id int, role text", "(1, 1, 1, 'a')", "(2, 2, 2, 'b')", "(3, 1, 2, 'c')")
    const where = `(user_id, team_id) IN (SELECT user_id, team_id FROM ${members} WHERE flag)`
    const shape = await w.synced({ table: details, where })
    assert.deepEqual(shape.column("id"), ["1"])
    for (const sql of [`UPDATE ${members} SET flag = true`, `UPDATE ${details} SET role = 'x'`, `UPDATE ${members} SET team_id = 1 WHERE user_id = 2`, `UPDATE ${details} SET team_id = 1`]) {
      await w.sql(sql)
      await w.agrees(shape)
    }
  })

  test("quoted names", async () => {
    const [parent, child] = [`"${w.name("Parent")}"`, `"${w.name("Child")}"`]
    await w.sql(`CREATE TABLE ${parent} (id int PRIMARY KEY, "otherValue" int); CREATE TABLE ${child} (id int PRIMARY KEY, "parentId" int)`)
    await w.sql(`INSERT INTO ${parent} VALUES (1, 10), (2, 5); INSERT INTO ${child} VALUES (1, 1), (2, 2)`)
    const shape = await w.synced({ table: child, where: `"parentId" IN (SELECT "id" FROM ${parent} WHERE "otherValue" >= 6)` })
    await w.sql(`UPDATE ${parent} SET "otherValue" = 7`)
    await w.agrees(shape)
  })
})

describe("what is refused", () => {
  test("sub-queries of other sorts", async () => {
    const { parent, child } = await family()
    for (const where of [
      `parent_id IN (SELECT id FROM nowhere)`,
      `parent_id IN (SELECT nope FROM ${parent})`,
      `parent_id IN (SELECT id, value FROM ${parent})`,
      `parent_id IN (SELECT id FROM ${parent} p JOIN ${child} c ON true)`,
      `parent_id IN (SELECT id FROM ${parent} ORDER BY id LIMIT 1)`,
      `parent_id IN (SELECT max(id) FROM ${parent})`,
      `parent_id IN (SELECT DISTINCT id FROM ${parent})`,
      `EXISTS (SELECT 1 FROM ${parent} WHERE id = parent_id)`,
      `parent_id IN (SELECT id FROM ${parent} WHERE value = ${child}.value)`,
      `parent_id = (SELECT id FROM ${parent})`,
      `parent_id > ANY (SELECT id FROM ${parent})`,
      `parent_id IN (SELECT id FROM ${parent} UNION SELECT 1)`,
    ]) {
      const answer = await w.request({ table: child, offset: "-1", where })
      assert.equal(answer.status, 400, `${where}: ${answer.status} ${answer.text.slice(0, 200)}`)
      assert.ok(answer.body.errors.where, answer.text)
    }
  })

  test("one sub-query both as IN and as NOT IN", async () => {
    const { parent, child } = await family()
    await w.refuses(
      { table: child, offset: "-1", where: `parent_id IN (SELECT id FROM ${parent}) OR NOT parent_id IN (SELECT id FROM ${parent})` },
      { where: ["a subquery dependency cannot be used with both positive and negative polarity in the same filter"] },
    )
  })

  test("compaction on request", async () => {
    const { child, where } = await family()
    await w.refuses({ table: child, offset: "now", where, experimental_compaction: "true" }, { experimental_compaction: ["can't be enabled for shapes with subqueries"] })
  })
})

describe("the inner table", () => {
  test("when it is truncated, the shape is read anew", async () => {
    const { parent, child, where } = await family()
    const shape = await w.synced({ table: child, where })
    await w.sql(`TRUNCATE ${parent}`)
    await w.agrees(shape)
    assert.equal(shape.rows.size, 0)
  })

  test("when it is altered, the shape goes on or is read anew, and is right", async () => {
    const { parent, child, where } = await family()
    const shape = await w.synced({ table: child, where })
    await w.sql(`ALTER TABLE ${parent} ADD COLUMN extra text; UPDATE ${parent} SET value = 1`)
    await w.agrees(shape)
  })
})

describe("many shapes", () => {
  const evaluations = async () => Number(/^thalweg_shape_evaluations_total (\d+)/m.exec(await (await fetch(`${w.base}/metrics`)).text())[1])

  test("a change asks those only that it may concern, whatever rows come and go", async () => {
    const owners = await w.table("id int PRIMARY KEY, owner int")
    const items = await w.table("id int PRIMARY KEY, owned int, done bool")
    await w.sql(`INSERT INTO ${owners} SELECT i, i FROM generate_series(1, 40) i; INSERT INTO ${items} SELECT i, i % 40 + 1, false FROM generate_series(1, 80) i`)
    const mine = (i) => `owned IN (SELECT id FROM ${owners} WHERE owner = ${i})`
    const shapes = await Promise.all(Array.from({ length: 40 }, (_, i) => w.synced({ table: items, where: i % 4 ? mine(i + 1) : `${mine(i + 1)} AND NOT done` })))
    const before = await evaluations()
    await w.sql(`UPDATE ${items} SET done = true WHERE id = 1`)
    await w.agrees(shapes[1])
    await w.sql(`UPDATE ${owners} SET id = 100 WHERE owner = 1`)
    await w.agrees(shapes[0])
    const after = await evaluations()
    assert.ok(after - before < 20, `${after - before} evaluations for two changes`)
    await w.sql(`UPDATE ${owners} SET owner = owner % 7 + 1; UPDATE ${items} SET owned = owned % 5 + 1, done = id % 3 = 0`)
    for (const shape of shapes) await w.agrees(shape)
  })
})

describe("killed while rows are on their way", () => {
  for (const late of [false, true])
    test(late ? "and changes wait for them" : "before anything else happened", async () => {
      const { parent, child, where } = await family()
      const nested = `parent_id IN (SELECT id FROM ${parent} WHERE value IN (SELECT value FROM ${parent} WHERE value = 1))`
      const shapes = [await w.synced({ table: child, where }), await w.synced({ table: child, where: nested })]
      const [one, other] = [await w.connection(), await w.connection()]
      const lock = `BEGIN; LOCK TABLE ${child} IN ACCESS EXCLUSIVE MODE`
      await one.query(lock)
      // The first waiter gets the lock first: the query for the rows stays behind this one.
      const next = late ? other.query(lock) : undefined
      const blocked = (n) => eventually(async () => Number(await w.one("SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'", [w.database])) >= n, { what: "a query that waits" })
      if (late) await blocked(1)
      await w.sql(`UPDATE ${parent} SET value = 1 WHERE id = 2`)
      await blocked(late ? 2 : 1)
      if (late) await one.query(`UPDATE ${child} SET value = value + 1; INSERT INTO ${child} VALUES (7, 2, 70), (8, 1, 80); DELETE FROM ${child} WHERE id = 1`)
      await one.query("COMMIT")
      await next
      if (late) {
        // It is seen by a shape that waits for nothing.
        const all = await w.synced({ table: parent })
        await w.sql(`INSERT INTO ${parent} VALUES (50, 50)`)
        await w.agrees(all)
      }
      await w.kill()
      if (late) await other.query("COMMIT")
      await w.serve()
      for (const shape of shapes) {
        shape.upToDate = false
        await w.agrees(shape)
        await w.agrees(await w.synced(shape.params))
      }
      await w.sql(`UPDATE ${parent} SET value = 3 WHERE id = 1; INSERT INTO ${child} VALUES (9, 2, 90)`)
      for (const shape of shapes) await w.agrees(shape)
    })
})
