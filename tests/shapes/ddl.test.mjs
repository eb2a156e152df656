// When the table itself changes, a shape ends and is read again; it never continues with wrong rows.

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

// The catalog is compared again, from beginning to end.
async function compared() {
  const before = await w.metric("shape_catalog_compared_total")
  await eventually(async () => (await w.metric("shape_catalog_compared_total")) >= before + 2)
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
      // The shape may continue, but must be right.
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

// Postgres sends nothing of these to followers of its log, and the columns look as before.
describe("what leaves a table looking as it was", () => {
  const COLUMNS = "id int PRIMARY KEY, n int, b text"
  const ROWS = ["(1, 1, 'a')", "(2, 2, 'b')"]

  for (const [what, sql] of [
    ["values that are computed anew", (t) => [`ALTER TABLE ${t} ALTER COLUMN n TYPE int USING n * 100`]],
    ["a column that is dropped and added again", (t) => [`ALTER TABLE ${t} DROP COLUMN b, ADD COLUMN b text DEFAULT 'fresh'`]],
    ["the same after VACUUM FULL", (t) => [`ALTER TABLE ${t} ALTER COLUMN n TYPE int USING n + 7`, `VACUUM FULL ${t}`]],
  ])
    test(`${what}: seen without a write, in every shape`, async () => {
      const table = await w.table(COLUMNS, ...ROWS)
      const shapes = [await w.synced({ table }), await w.synced({ table, where: "id = 1" }), await w.synced({ table, where: `id IN (SELECT id FROM ${table})` })]
      for (const one of sql(table)) await w.sql(one)
      for (const shape of shapes) await w.agrees(shape)
      await w.sql(`UPDATE ${table} SET n = n + 1; INSERT INTO ${table} (id, n, b) VALUES (3, 3, 'c')`)
      for (const shape of shapes) await w.agrees(shape)
      await w.agrees(await w.synced({ table, where: "n > 0" }))
    })

  for (const [what, change] of [
    ["gets an attribute", "ADD ATTRIBUTE r int"],
    ["loses one", "DROP ATTRIBUTE q"],
  ])
    test(`a composite type that ${what}, also inside of others`, async () => {
      const type = w.name("type")
      await w.sql(`CREATE TYPE ${type} AS (p int, q text); CREATE TYPE ${type}_outer AS (i ${type}, n int)`)
      const table = await w.table(`id int PRIMARY KEY, c ${type}, a ${type}_outer[]`, `(1, ROW(1, 'x'), ARRAY[ROW(ROW(2, 'y')::${type}, 3)::${type}_outer])`)
      const shapes = [await w.synced({ table }), await w.synced({ table, columns: "id,a" })]
      await w.sql(`ALTER TYPE ${type} ${change}`)
      await w.agrees(shapes[0])
      await w.agrees(shapes[1], { columns: "id, a" })
      assert.deepEqual(shapes.map((shape) => shape.refetches), [1, 1])
    })

  test("another expression of a generated column", async (t) => {
    if (w.version < 18) return t.skip("shapes have generated columns from Postgres 18 on")
    const table = w.name()
    await w.sql(`CREATE TABLE ${table} (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n * 2) STORED); INSERT INTO ${table} VALUES (1, 5)`)
    const shapes = [await w.synced({ table }), await w.synced({ table, columns: "id", where: "g = 10" })]
    await w.sql(`ALTER TABLE ${table} ALTER COLUMN g SET EXPRESSION AS (n * 3)`)
    await w.agrees(shapes[0])
    await w.agrees(shapes[1], { columns: "id" })
    assert.equal(shapes[1].rows.size, 0)
  })

  test("while the server is stopped", async () => {
    const table = await w.table(COLUMNS, ...ROWS)
    const shape = await w.synced({ table })
    await w.kill()
    await w.sql(`ALTER TABLE ${table} ALTER COLUMN n TYPE int USING n * 100`)
    await w.serve()
    shape.upToDate = false
    await w.agrees(shape)
    assert.equal(shape.refetches, 1)
  })

  test("in a partition only", async () => {
    const table = w.name("root")
    await w.sql(`CREATE TABLE ${table} (id int, n int, PRIMARY KEY (id)) PARTITION BY RANGE (id); CREATE TABLE ${table}_a PARTITION OF ${table} FOR VALUES FROM (0) TO (10);
      CREATE TABLE ${table}_b PARTITION OF ${table} FOR VALUES FROM (10) TO (20); INSERT INTO ${table} VALUES (1, 1), (11, 11)`)
    const shape = await w.synced({ table })
    await w.sql(`ALTER TABLE ${table} ALTER COLUMN n TYPE int USING n * 100`)
    await w.agrees(shape)
    assert.equal(shape.refetches, 1)
  })

  test("is not what changes no row: nobody reads anything anew", async () => {
    const table = await w.table(COLUMNS, ...ROWS)
    const shape = await w.synced({ table })
    await w.sql(`VACUUM FULL ${table}`)
    await w.agrees(shape)
    await compared()
    await w.sql(`ALTER TABLE ${table} ALTER COLUMN b SET DEFAULT 'x', ALTER COLUMN n SET STATISTICS 10, ALTER COLUMN b SET STORAGE EXTERNAL`)
    await w.sql(`INSERT INTO ${table} VALUES (3, 3, 'c')`)
    await w.agrees(shape)
    await compared()
    await w.restart()
    shape.upToDate = false
    await w.agrees(shape)
    assert.equal(shape.refetches, 0)
  })
})

describe("a publication that somebody changes and sets back", () => {
  const name = () => w.one("SELECT pubname FROM pg_publication")

  test("had left out updates and deletes: shapes are read anew, and none is made meanwhile", async () => {
    const table = await w.table("id int PRIMARY KEY, n int", "(1, 1)", "(2, 2)", "(3, 3)")
    const shape = await w.synced({ table })
    const publication = await name()
    await w.sql(`ALTER PUBLICATION ${publication} SET (publish = 'insert')`)
    await w.sql(`UPDATE ${table} SET n = 10 WHERE id = 1; DELETE FROM ${table} WHERE id = 2`)
    const refused = await eventually(async () => {
      const answer = await w.request({ table, offset: "-1", where: "n > 0" })
      return answer.status === 503 && answer
    })
    assert.equal(refused.body.code, "publication_misses_operations", refused.text)
    await w.sql(`ALTER PUBLICATION ${publication} SET (publish = 'insert, update, delete, truncate')`)
    await w.agrees(shape)
    await w.agrees(await w.synced({ table, where: "n > 0" }))
  })

  test("within a moment", async () => {
    await compared()
    const table = await w.table("id int PRIMARY KEY, n int", "(1, 1)", "(2, 2)")
    const shape = await w.synced({ table })
    const publication = await name()
    await compared()
    await w.sql(`ALTER PUBLICATION ${publication} SET (publish = 'insert')`)
    await w.sql(`UPDATE ${table} SET n = 10 WHERE id = 1`)
    await w.sql(`ALTER PUBLICATION ${publication} SET (publish = 'insert, update, delete, truncate')`)
    await w.agrees(shape)
    assert.ok(shape.refetches >= 1)
  })

  test("had left out one table for a moment", async () => {
    await compared()
    const [table, calm] = [await w.table("id int PRIMARY KEY, n int", "(1, 1)"), await w.table("id int PRIMARY KEY", "(1)")]
    const [shape, other] = [await w.synced({ table }), await w.synced({ table: calm })]
    const publication = await name()
    await compared()
    await w.sql(`ALTER PUBLICATION ${publication} DROP TABLE ${table}`)
    await w.sql(`UPDATE ${table} SET n = 10`)
    await w.sql(`ALTER PUBLICATION ${publication} ADD TABLE ${table}`)
    await w.agrees(shape)
    await w.agrees(other)
    assert.deepEqual([shape.refetches, other.refetches], [1, 0])
  })

  test("while the server is stopped", async () => {
    const table = await w.table("id int PRIMARY KEY, n int", "(1, 1)")
    const shape = await w.synced({ table })
    const publication = await name()
    await w.kill()
    await w.sql(`ALTER PUBLICATION ${publication} SET (publish = 'insert')`)
    await w.sql(`UPDATE ${table} SET n = 10`)
    await w.sql(`ALTER PUBLICATION ${publication} SET (publish = 'insert, update, delete, truncate')`)
    await w.serve()
    shape.upToDate = false
    await w.agrees(shape)
    assert.equal(shape.refetches, 1)
  })

  test("was dropped and made again for all tables, and somebody asked for a table between", async (t) => {
    if (w.version < 18) return t.skip("before Postgres 18 the stream ends when its publication is gone")
    const own = await World.start({ serve: false })
    t.after(() => own.stop())
    const publication = `thalweg_publication_${own.database}`
    const make = () => own.sql(`CREATE PUBLICATION ${publication} FOR ALL TABLES WITH (publish_generated_columns = stored)`)
    await make()
    await own.serve()
    const [table, other] = [await own.table("id int PRIMARY KEY, n int", "(1, 1)"), await own.table("id int PRIMARY KEY", "(1)")]
    const shape = await own.synced({ table })
    const compared = () => own.metric("shape_catalog_compared_total")
    const before = await compared()
    await eventually(async () => (await compared()) > before)
    await own.sql(`DROP PUBLICATION ${publication}`)
    await own.sql(`UPDATE ${table} SET n = 10`)
    const asked = await own.request({ table: other, offset: "-1" })
    assert.notEqual(asked.status, 200, asked.text)
    await make()
    await own.agrees(shape, { within: 30000 })
    await own.sql(`UPDATE ${table} SET n = 11`)
    await own.agrees(shape)
  })

  test("had left out generated columns for a moment", async (t) => {
    if (w.version < 18) return t.skip("generated columns are published from Postgres 18 on")
    const table = w.name()
    await w.sql(`CREATE TABLE ${table} (id int PRIMARY KEY, n int, g int GENERATED ALWAYS AS (n * 2) STORED); INSERT INTO ${table} VALUES (1, 1)`)
    const shape = await w.synced({ table })
    const publication = await name()
    await compared()
    await w.sql(`ALTER PUBLICATION ${publication} SET (publish_generated_columns = none)`)
    await w.sql(`INSERT INTO ${table} VALUES (2, 2)`)
    await w.sql(`ALTER PUBLICATION ${publication} SET (publish_generated_columns = stored)`)
    await w.agrees(shape)
  })
})

describe("a publication by the root of partitions", () => {
  test("is refused, as it does not tell that a partition is truncated", async () => {
    const own = await World.start({ serve: false, settings: { ELECTRIC_MANUAL_TABLE_PUBLISHING: "true" } })
    try {
      await own.sql(`CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10);
        ALTER TABLE root REPLICA IDENTITY FULL; ALTER TABLE leaf REPLICA IDENTITY FULL; INSERT INTO root VALUES (1);
        CREATE PUBLICATION thalweg_publication_${own.database} FOR TABLE root WITH (publish_via_partition_root = true)`)
      await own.serve()
      const refused = await own.request({ table: "root", offset: "-1" })
      assert.deepEqual([refused.status, refused.body.code], [503, "partition_published_as_root"], refused.text)
      await own.sql(`ALTER PUBLICATION thalweg_publication_${own.database} SET (publish_via_partition_root = false)`)
      const shape = await own.synced({ table: "root" })
      await own.sql("TRUNCATE leaf")
      await own.agrees(shape)
    } finally {
      await own.stop()
    }
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
