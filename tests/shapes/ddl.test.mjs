// When the table itself changes, a shape ends and is read anew; it never goes on with something wrong.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { eventually, World } from "./support/world.mjs"

let w
before(async () => (w = await World.start()))
after(() => w?.stop())

const MUST_REFETCH = [{ headers: { control: "must-refetch" } }]

// A live request that waits while `change` is made; the shape must be gone before long, by itself or with the next write.
async function rotates(shape, change, write) {
  const { handle } = shape
  const params = { ...shape.params, handle, offset: shape.offset }
  await change()
  const answer = await eventually(
    async () => {
      if (write) await write()
      const answer = await w.request({ ...params, live: "true" })
      return answer.status === 200 ? undefined : answer
    },
    { within: 20000, what: "the end of the shape" },
  )
  return answer
}

describe("the end of a shape", () => {
  test("TRUNCATE", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    const waiting = w.request({ table, handle: shape.handle, offset: shape.offset, live: "true" })
    await w.sql(`TRUNCATE ${table}`)
    const answer = await waiting
    assert.equal(answer.status, 409)
    assert.deepEqual(answer.body, MUST_REFETCH)
    await w.sql(`INSERT INTO ${table} VALUES (2)`)
    const next = await w.synced({ table })
    assert.notEqual(next.handle, shape.handle)
    assert.deepEqual(next.column("id"), ["2"])
    await w.sql(`INSERT INTO ${table} VALUES (3)`)
    await w.agrees(next)
  })

  test("TRUNCATE among other changes of one transaction", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    await w.sql(`BEGIN; INSERT INTO ${table} VALUES (2); TRUNCATE ${table}; INSERT INTO ${table} VALUES (3); COMMIT`)
    await w.agrees(shape)
    assert.deepEqual(shape.column("id"), ["3"])
  })

  test("TRUNCATE CASCADE and of several tables", async () => {
    const parent = await w.table("id int PRIMARY KEY", "(1)")
    const child = await w.table(`id int PRIMARY KEY, parent int REFERENCES ${parent}`, "(1, 1)")
    const shapes = [await w.synced({ table: parent }), await w.synced({ table: child })]
    await w.sql(`TRUNCATE ${parent} CASCADE`)
    for (const shape of shapes) {
      await w.agrees(shape)
      assert.equal(shape.refetches, 1)
    }
  })

  for (const [what, sql] of [
    ["a column that is added", (t) => `ALTER TABLE ${t} ADD COLUMN extra text DEFAULT 'x'`],
    ["a column that is dropped", (t) => `ALTER TABLE ${t} DROP COLUMN b`],
    ["a column that is renamed", (t) => `ALTER TABLE ${t} RENAME COLUMN b TO c`],
    ["a column of another type", (t) => `ALTER TABLE ${t} ALTER COLUMN a TYPE text`],
    ["another primary key", (t) => `ALTER TABLE ${t} DROP CONSTRAINT ${t}_pkey, ADD PRIMARY KEY (a)`],
  ])
    test(what, async () => {
      const table = await w.table("id int NOT NULL, a int NOT NULL, b text, PRIMARY KEY (id)", "(1, 1, 'x')", "(2, 2, 'y')")
      const shape = await w.synced({ table })
      await w.sql(sql(table))
      await w.sql(`UPDATE ${table} SET a = '5' WHERE id = 1`)
      // It may go on if it can, but must be right.
      await w.agrees(shape)
      const fresh = await w.synced({ table })
      await w.agrees(fresh)
      assert.deepEqual(Object.keys(fresh.schema).sort(), Object.keys(fresh.values()[0]).sort())
    })

  test("a table that is renamed", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    let n = 10
    const answer = await rotates(
      shape,
      () => w.sql(`ALTER TABLE ${table} RENAME TO ${table}_new`),
      () => w.sql(`INSERT INTO ${table}_new VALUES (${n++})`),
    )
    assert.ok(answer.status === 409 || answer.status === 400, `${answer.status} ${answer.text}`)
    await w.agrees(await w.synced({ table: `${table}_new` }))
    assert.equal((await w.request({ table, offset: "-1" })).status, 400)
  })

  test("a table that is dropped", async () => {
    const table = await w.table("id int PRIMARY KEY", "(1)")
    const shape = await w.synced({ table })
    const answer = await rotates(shape, () => w.sql(`DROP TABLE ${table}`))
    assert.ok(answer.status === 409 || answer.status === 400, `${answer.status} ${answer.text}`)
    const fresh = await w.request({ table, offset: "-1", where: "id = 2" })
    assert.ok([400, 409].includes(fresh.status), `${fresh.status} ${fresh.text}`)
    const again = await eventually(async () => {
      const next = await w.request({ table, offset: "-1" })
      return next.status === 400 && next
    })
    assert.match(again.body.errors.table[0], /does not exist/)
  })

  test("a partitioned table that gets a column tells no change without it", async () => {
    const table = w.name("root")
    await w.sql(`CREATE TABLE ${table} (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)`)
    await w.sql(`CREATE TABLE ${table}_a PARTITION OF ${table} FOR VALUES IN (1)`)
    const shape = await w.synced({ table })
    await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (1, 1)`))
    await w.sql(`BEGIN; ALTER TABLE ${table} ADD COLUMN x int; INSERT INTO ${table} VALUES (2, 1, 5); COMMIT`)
    assert.equal((await w.request({ table, handle: shape.handle, offset: shape.offset, live: true })).status, 409)
    await w.agrees(shape)
    assert.deepEqual(shape.column("x"), ["5", null])
  })

  test("a column that loses NOT NULL stays the same shape with another schema", async () => {
    const table = await w.table("id int PRIMARY KEY, v text NOT NULL", "(1, 'x')")
    const shape = await w.synced({ table })
    assert.equal(shape.schema.v.not_null, true)
    await w.sql(`ALTER TABLE ${table} ALTER COLUMN v DROP NOT NULL`)
    await w.sql(`INSERT INTO ${table} VALUES (2, NULL)`)
    await w.agrees(shape)
    const seen = async () => JSON.parse((await w.request({ table, offset: "-1" })).header("electric-schema")).v.not_null ?? false
    assert.equal(await seen(), false, "with the row that shows it")
    await shape.step()
    assert.equal(shape.refetches, 0)
    await w.sql(`DELETE FROM ${table} WHERE v IS NULL; ALTER TABLE ${table} ALTER COLUMN v SET NOT NULL`)
    await eventually(seen, { what: "the column is not null again" })
    await w.restart()
    await eventually(seen, { what: "so it is after a restart" })
    assert.equal((await w.request({ table, offset: "-1" })).header("electric-handle"), shape.handle)
  })

  test("what does not concern the rows leaves the shape alone", async () => {
    const table = await w.table("id int PRIMARY KEY, v text", "(1, 'x')")
    const shape = await w.synced({ table })
    await w.sql(`CREATE INDEX ON ${table} (v); COMMENT ON TABLE ${table} IS 'x'; ALTER TABLE ${table} ADD CHECK (id > 0); ANALYZE ${table}`)
    await w.sql(`INSERT INTO ${table} VALUES (2, 'y')`)
    await w.agrees(shape)
    assert.equal(shape.refetches, 0)
  })

  test("other tables are not touched by any of this", async () => {
    const [calm, wild] = [await w.table("id int PRIMARY KEY", "(1)"), await w.table("id int PRIMARY KEY", "(1)")]
    const shape = await w.synced({ table: calm })
    const other = await w.synced({ table: wild })
    await w.sql(`TRUNCATE ${wild}; ALTER TABLE ${wild} ADD COLUMN x int; INSERT INTO ${wild} VALUES (3, 3); DROP TABLE ${wild}`)
    await w.sql(`INSERT INTO ${calm} VALUES (2)`)
    await w.agrees(shape)
    assert.equal(shape.refetches, 0)
    void other
  })

  test("a table that is rewritten in place", async () => {
    const table = await w.table("id int PRIMARY KEY, v text", "(1, 'x')")
    const shape = await w.synced({ table })
    await w.sql(`VACUUM FULL ${table}`)
    await w.sql(`CLUSTER ${table} USING ${table}_pkey`)
    await w.sql(`UPDATE ${table} SET v = 'y'`)
    await w.agrees(shape)
  })
})

describe("what the server does to the database", () => {
  test("a table gets its full replica identity and is published", async () => {
    const table = await w.table("id int PRIMARY KEY")
    await w.synced({ table })
    assert.equal(await w.one(`SELECT relreplident FROM pg_class WHERE relname = $1`, [table]), "f")
    assert.ok(Number(await w.one(`SELECT count(*) FROM pg_publication_tables WHERE tablename = $1`, [table])) >= 1)
    assert.equal(await w.one(`SELECT count(*) FROM pg_replication_slots WHERE database = $1`, [w.database]), "1")
  })

  test("the slot moves on, so that Postgres can drop its log", async () => {
    const table = await w.table("id int PRIMARY KEY, t text")
    const shape = await w.synced({ table })
    await w.sql(`INSERT INTO ${table} SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) i`)
    await shape.until((s) => s.rows.size === 2000)
    const lsn = await w.one("SELECT pg_current_wal_lsn()::text")
    await eventually(
      async () => {
        await w.sql(`UPDATE ${table} SET t = 'y' WHERE id = 1`)
        return (await w.one(`SELECT confirmed_flush_lsn >= $2::pg_lsn FROM pg_replication_slots WHERE database = $1`, [w.database, lsn])) === "t"
      },
      { within: 30000, what: "the slot's move" },
    )
  })
})
