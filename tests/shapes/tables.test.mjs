// Tables of every sort: types, names, keys, partitions, generated columns.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { World } from "./support/world.mjs"

let w
before(async () => (w = await World.start()))
after(() => w?.stop())

describe("types", () => {
  // type, value, text as Postgres prints it, another value, its text
  const SAMPLES = [
    ["int2", "-32768", "-32768", "7", "7"],
    ["int4", "2147483647", "2147483647", "0", "0"],
    ["int8", "9223372036854775807", "9223372036854775807", "-1", "-1"],
    ["float4", "0.1", "0.1", "'NaN'", "NaN"],
    ["float8", "4.5", "4.5", "'-Infinity'", "-Infinity"],
    ["numeric", "12345678901234567890.123", "12345678901234567890.123", "0.10", "0.10"],
    ["numeric(10,3)", "1.5", "1.500", "-2", "-2.000"],
    ["text", "'a\"b\\c/d\né\u{1F600}'", 'a"b\\c/d\né\u{1F600}', "''", ""],
    ["varchar(10)", "'abc'", "abc", "'x '", "x "],
    ["char(5)", "'ab'", "ab   ", "'abcde'", "abcde"],
    ["bytea", "'\\x0001fffe'", "\\x0001fffe", "'\\x'", "\\x"],
    ["uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "'00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"],
    ["date", "'2024-02-29'", "2024-02-29", "'infinity'", "infinity"],
    ["time", "'12:34:56.789'", "12:34:56.789", "'24:00'", "24:00:00"],
    ["timetz", "'12:34:56+02'", "12:34:56+02", "'00:00+00'", "00:00:00+00"],
    ["timestamp", "'2024-01-02 03:04:05.678901'", "2024-01-02 03:04:05.678901", "'0044-03-15 12:00 BC'", "0044-03-15 12:00:00 BC"],
    ["timestamptz", "'2024-01-02 03:04:05+03'", "2024-01-02 00:04:05+00", "'-infinity'", "-infinity"],
    ["interval", "'1 year 2 mons 3 days 04:05:06.7'", "P1Y2M3DT4H5M6.7S", "'-1 day'", "P-1D"],
    ["json", `'{"a": 1,  "b":[ ]}'`, '{"a": 1,  "b":[ ]}', "'null'", "null"],
    ["jsonb", `'{"b":1,"a":2}'`, '{"a": 2, "b": 1}', "'[]'", "[]"],
    ["inet", "'10.0.0.1/8'", "10.0.0.1/8", "'::1'", "::1"],
    ["point", "'(1,2)'", "(1,2)", "'(0,0)'", "(0,0)"],
    ["int4range", "'[1,5]'", "[1,6)", "'empty'", "empty"],
    ["bit(4)", "B'1010'", "1010", "B'0000'", "0000"],
    ["int8[]", "'{1,NULL,3}'", "{1,NULL,3}", "'{}'", "{}"],
    ["int4[][]", "'{{1,2},{3,4}}'", "{{1,2},{3,4}}", "'[2:3]={5,6}'", "[2:3]={5,6}"],
    ["text[]", `ARRAY['a,b', 'c"d', '', NULL, 'null']`, '{"a,b","c\\"d","",NULL,"null"}', "'{x}'", "{x}"],
    ["bool[]", "'{true,false}'", "{t,f}", "'{f}'", "{f}"],
    ["float8[]", "'{Infinity,NaN,1.5}'", "{Infinity,NaN,1.5}", "'{0}'", "{0}"],
    ["jsonb[]", `ARRAY['{"a":1}'::jsonb]`, '{"{\\"a\\": 1}"}', "'{}'", "{}"],
  ]

  test("every type is told as Postgres prints it, first and later", async () => {
    const columns = SAMPLES.map(([type], i) => `c${i} ${type}`).join(", ")
    const table = await w.table(`id int PRIMARY KEY, ${columns}`)
    await w.sql(`INSERT INTO ${table} VALUES (1, ${SAMPLES.map(([, value]) => value).join(", ")})`)
    const shape = await w.synced({ table })
    const first = shape.values()[0]
    SAMPLES.forEach(([type, , text], i) => assert.equal(first[`c${i}`], text, type))
    const [insert, update] = await shape.changes(async () => {
      await w.sql(`INSERT INTO ${table} VALUES (2, ${SAMPLES.map(([, value]) => value).join(", ")})`)
      await w.sql(`UPDATE ${table} SET ${SAMPLES.map(([, , , value], i) => `c${i} = ${value}`).join(", ")} WHERE id = 1`)
    }, 2)
    SAMPLES.forEach(([type, , text, , other], i) => {
      assert.equal(insert.value[`c${i}`], text, `${type} in an insert`)
      assert.equal(update.value[`c${i}`], other, `${type} in an update`)
    })
  })

  test("types of one's own are told as text as well", async () => {
    const [mood, complex, posint] = [w.name("mood"), w.name("complex"), w.name("posint")]
    await w.sql(`CREATE TYPE ${mood} AS ENUM ('sad', 'ok', 'very happy'); CREATE TYPE ${complex} AS (r float8, i float8); CREATE DOMAIN ${posint} AS int CHECK (VALUE > 0)`)
    const table = await w.table(`id int PRIMARY KEY, m ${mood}, ms ${mood}[], c ${complex}, p ${posint}`, `(1, 'very happy', '{sad,"very happy"}', '(1.5,2)', 3)`)
    const shape = await w.synced({ table })
    assert.deepEqual(shape.values()[0], { id: "1", m: "very happy", ms: '{sad,"very happy"}', c: "(1.5,2)", p: "3" })
    const named = Object.fromEntries(Object.entries(shape.schema).map(([name, column]) => [name, [column.type, column.dims]]))
    assert.deepEqual(named, { id: ["int4", undefined], m: [mood, undefined], ms: [mood, 1], c: [complex, undefined], p: [posint, undefined] })
    const [update] = await shape.changes(() => w.sql(`UPDATE ${table} SET m = 'ok', c = NULL, p = 4`))
    assert.deepEqual(update.value, { id: "1", m: "ok", c: null, p: "4" })
  })

  test("booleans can be read in both forms", async () => {
    const table = await w.table("id int PRIMARY KEY, b bool", "(1, true)", "(2, false)", "(3, NULL)")
    const shape = await w.synced({ table })
    const read = (value) => ({ t: true, true: true, f: false, false: false })[value] ?? value
    assert.deepEqual(shape.values().sort((a, b) => a.id - b.id).map((row) => read(row.b)), [true, false, null])
    const [update] = await shape.changes(() => w.sql(`UPDATE ${table} SET b = NOT b WHERE id = 1`))
    assert.equal(read(update.value.b), false)
  })

  test("text of every control character is valid JSON", async () => {
    const table = await w.table("id int PRIMARY KEY, t text")
    const text = Array.from({ length: 127 }, (_, i) => String.fromCharCode(i + 1)).join("")
    await w.sql(`INSERT INTO ${table} VALUES (1, $1)`, [text])
    const shape = await w.synced({ table })
    assert.equal(shape.values()[0].t, text)
    const [change] = await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (2, $1)`, [text]))
    assert.equal(change.value.t, text)
  })

  test("a value of ten megabytes goes through", async () => {
    const table = await w.table("id int PRIMARY KEY, b bytea")
    await w.sql(`INSERT INTO ${table} SELECT 1, decode(repeat('0123456789abcdef', 1250000), 'hex')`)
    const shape = await w.synced({ table })
    assert.equal(shape.values()[0].b.length, 20000002)
    await shape.changes(() => w.sql(`UPDATE ${table} SET b = decode(repeat('fedcba9876543210', 1250000), 'hex')`))
    assert.ok(shape.values()[0].b.startsWith("\\xfedcba98"))
  })
})

describe("schema", () => {
  test("the header tells types, dimensions, keys and modifiers", async () => {
    const table = await w.table(
      `b int NOT NULL, a int, PRIMARY KEY (b, a), t text NOT NULL, v varchar(20), c char(3), n numeric(10,2), n0 numeric, ts timestamp(3), i interval year to month,
       bits bit(5), arr int8[], arr2 text[][], u uuid, f8 float8, bo bool`,
    )
    const { schema } = await w.synced({ table })
    assert.deepEqual(schema, {
      b: { type: "int4", pk_index: 0, not_null: true },
      a: { type: "int4", pk_index: 1, not_null: true },
      t: { type: "text", not_null: true },
      v: { type: "varchar", max_length: 20 },
      c: { type: "bpchar", length: 3 },
      n: { type: "numeric", precision: 10, scale: 2 },
      n0: { type: "numeric" },
      ts: { type: "timestamp", precision: 3 },
      i: { type: "interval", fields: "YEAR TO MONTH" },
      bits: { type: "bit", length: 5 },
      arr: { type: "int8", dims: 1 },
      arr2: { type: "text", dims: 2 },
      u: { type: "uuid" },
      f8: { type: "float8" },
      bo: { type: "bool" },
    })
  })

  test("it is told with everything that is not live", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const first = await w.request({ table, offset: "-1" })
    assert.deepEqual(JSON.parse(first.header("electric-schema")), { id: { type: "int4", pk_index: 0, not_null: true } })
    const next = await w.request({ table, offset: "0_0", handle: first.header("electric-handle") })
    assert.equal(next.header("electric-schema"), first.header("electric-schema"))
  })
})

describe("names", () => {
  test("a table in another schema, with capitals, spaces, quotes and dots", async () => {
    const schema = w.name("My Schema")
    await w.sql(`CREATE SCHEMA "${schema}"`)
    await w.sql(`CREATE TABLE "${schema}"."Odd ""table"".x/y" ("The Key" int PRIMARY KEY, "Välue" text)`)
    await w.sql(`INSERT INTO "${schema}"."Odd ""table"".x/y" VALUES (1, 'a')`)
    const table = `"${schema}"."Odd ""table"".x/y"`
    const shape = w.shape({ table })
    const [change] = await shape.changes(() => w.sql(`UPDATE ${table} SET "Välue" = 'b'`))
    assert.deepEqual(change.value, { "The Key": "1", "Välue": "b" })
    assert.deepEqual(change.headers.relation, [schema, 'Odd "table".x/y'])
    assert.equal(change.key, shape.log[0].key, "the key of a row is the same first and later")
    const where = await w.synced({ table, where: `"Välue" = 'b'` })
    assert.equal(where.rows.size, 1)
  })

  test("names beyond ASCII need no quotes", async () => {
    const table = `${w.name("täble")}Φ`.toLowerCase()
    await w.sql(`CREATE TABLE ${table} (id int PRIMARY KEY, naïve text)`)
    await w.sql(`INSERT INTO ${table} VALUES (1, 'x')`)
    assert.deepEqual((await w.synced({ table, where: "naïve = 'x'" })).values(), [{ id: "1", naïve: "x" }])
  })

  test("unquoted names are lower-cased, quoted ones are kept", async () => {
    const name = w.name("MiXed")
    await w.sql(`CREATE TABLE "${name}" (id int PRIMARY KEY)`)
    await w.refuses({ table: name, offset: "-1" }, { table: [missing("public", name.toLowerCase())] })
    assert.equal((await w.request({ table: `"${name}"`, offset: "-1" })).status, 200)
  })

  const missing = (schema, table) => `Table "${schema}"."${table}" does not exist. If the table name contains capitals or special characters you must quote it.`

  test("what is no name or no table is refused", async () => {
    await w.refuses({ offset: "-1" }, { table: ["can't be blank"] })
    await w.refuses({ table: "nowhere", offset: "-1" }, { table: [missing("public", "nowhere")] })
    await w.refuses({ table: "_val1d_schëma$.tàble", offset: "-1" }, { table: [missing("_val1d_schëma$", "tàble")] })
    await w.refuses({ table: ".invalid", offset: "-1" }, { table: ["Invalid zero-length delimited identifier"] })
    for (const table of ["a.b.c", '"unclosed', "a b", "a;b"]) {
      const answer = await w.request({ table, offset: "-1" })
      assert.equal(answer.status, 400, `${table}: ${answer.text}`)
      assert.ok(answer.body.errors.table, table)
    }
  })
})

describe("keys", () => {
  test("of several columns, in the key's order", async () => {
    const table = await w.table("second text, first text, third text, fourth text, PRIMARY KEY (first, second, third)", "('b', 'a', 'c', 'd')")
    const shape = w.shape({ table })
    const [change] = await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES ('f', 'e', 'g', 'h')`))
    assert.equal(shape.log[0].key, `"public"."${table}"/"a"/"b"/"c"`)
    assert.equal(change.key, `"public"."${table}"/"e"/"f"/"g"`)
  })

  test("with slashes, quotes and dots in their values stay apart", async () => {
    const values = ["a/b", "a", "a/", "/", '"', '"/"', "a.b", "", "é"]
    const table = await w.table("a text, b text, PRIMARY KEY (a, b)")
    const shape = await w.synced({ table })
    for (const a of values) for (const b of values) await w.sql(`INSERT INTO ${table} VALUES ($1, $2)`, [a, b])
    await shape.until((s) => s.rows.size === values.length ** 2)
    const late = await w.synced({ table, where: "true" })
    assert.equal(late.rows.size, values.length ** 2)
    assert.deepEqual([...late.rows.keys()].sort(), [...shape.rows.keys()].sort(), "keys are the same from the snapshot and from the log")
    assert.ok(shape.rows.has(`"public"."${table}"/"a//b"/"a"`))
  })

  test("a table without a key is known by all of its columns", async () => {
    const table = await w.table("b text, a text", "('x', 'y')")
    const shape = w.shape({ table })
    await shape.sync()
    assert.equal(shape.log[0].key, `"public"."${table}"/"y"/"x"`)
    const [gone, come, more] = await shape.changes(
      () => w.sql(`BEGIN; UPDATE ${table} SET b = 'z'; INSERT INTO ${table} VALUES ('p', NULL); COMMIT`),
      3,
    )
    assert.deepEqual([gone, come, more].map((message) => message.headers.operation), ["delete", "insert", "insert"])
    assert.deepEqual(gone.value, { a: "y", b: "x" })
    assert.deepEqual(come.value, { a: "y", b: "z" })
    assert.equal(more.key, `"public"."${table}"/_/"p"`)
  })

  test("a key's type may be any", async () => {
    for (const [type, value] of [["uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"], ["timestamptz", "'2024-01-02 03:04:05+03'"], ["bytea", "'\\xff'"], ["numeric", "1.50"], ["char(4)", "'ab'"], ["bool", "true"]]) {
      const table = await w.table(`id ${type} PRIMARY KEY, n int`, `(${value}, 1)`)
      const shape = w.shape({ table })
      const [change] = await shape.changes(() => w.sql(`UPDATE ${table} SET n = 2`))
      assert.equal(change.key, shape.log[0].key, type)
    }
  })
})

describe("partitions", () => {
  test("the root tells what happens in its leaves, under its own name", async () => {
    const table = w.name("root")
    await w.sql(`CREATE TABLE ${table} (id int, part int, t text, PRIMARY KEY (id, part)) PARTITION BY RANGE (part)`)
    await w.sql(`CREATE TABLE ${table}_a PARTITION OF ${table} FOR VALUES FROM (0) TO (10)`)
    await w.sql(`CREATE TABLE ${table}_b PARTITION OF ${table} FOR VALUES FROM (10) TO (20)`)
    await w.sql(`INSERT INTO ${table} VALUES (1, 1, 'a'), (2, 11, 'b')`)
    const root = await w.synced({ table })
    assert.equal(root.rows.size, 2)
    const [update] = await root.changes(() => w.sql(`UPDATE ${table} SET t = 'c' WHERE id = 1`))
    assert.deepEqual(update.headers.relation, ["public", table])
    assert.equal(update.key, `"public"."${table}"/"1"/"1"`)
    await w.sql(`UPDATE ${table} SET part = 15 WHERE id = 1`)
    await w.sql(`INSERT INTO ${table}_b VALUES (3, 12, 'direct')`)
    await w.agrees(root)
  })

  test("a leaf is a table of its own, together with its root", async () => {
    const table = w.name("root")
    await w.sql(`CREATE TABLE ${table} (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)`)
    await w.sql(`CREATE TABLE ${table}_a PARTITION OF ${table} FOR VALUES IN (1)`)
    await w.sql(`CREATE TABLE ${table}_b PARTITION OF ${table} FOR VALUES IN (2)`)
    const leaf = await w.synced({ table: `${table}_a` })
    const root = await w.synced({ table })
    await w.sql(`INSERT INTO ${table} VALUES (1, 1), (2, 2)`)
    await w.agrees(root)
    await w.agrees(leaf)
    assert.deepEqual(leaf.column("id"), ["1"])
    assert.deepEqual(leaf.log.find((m) => m.key).headers.relation, ["public", `${table}_a`])
  })

  test("new partitions are followed", async () => {
    const table = w.name("root")
    await w.sql(`CREATE TABLE ${table} (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)`)
    await w.sql(`CREATE TABLE ${table}_a PARTITION OF ${table} FOR VALUES IN (1)`)
    const root = await w.synced({ table })
    await w.sql(`CREATE TABLE ${table}_b PARTITION OF ${table} FOR VALUES IN (2)`)
    await w.sql(`INSERT INTO ${table} VALUES (1, 1), (2, 2)`)
    await w.agrees(root)
  })
})

test("a partition that was described before its root had a shape is known to be one", async () => {
  const own = await World.start()
  try {
    await own.sql("CREATE TABLE plain (id int PRIMARY KEY)")
    await own.sql("CREATE TABLE root (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)")
    await own.sql("CREATE TABLE leaf PARTITION OF root FOR VALUES IN (1)")
    await own.sql("ALTER TABLE root REPLICA IDENTITY FULL; ALTER TABLE leaf REPLICA IDENTITY FULL")
    const plain = await own.synced({ table: "plain" })
    await own.sql(`ALTER PUBLICATION ${await own.one("SELECT pubname FROM pg_publication")} ADD TABLE root`)
    // The stream describes the leaf here, and not again.
    await own.sql("INSERT INTO root VALUES (1, 1); INSERT INTO plain VALUES (1)")
    await own.agrees(plain)
    const root = await own.synced({ table: "root" })
    await own.sql("INSERT INTO root VALUES (2, 1)")
    await own.agrees(root)
    assert.deepEqual(root.column("id"), ["1", "2"])
  } finally {
    await own.stop()
  }
})

describe("generated columns", () => {
  const COLUMNS = "val jsonb NOT NULL, id text PRIMARY KEY, up text GENERATED ALWAYS AS (upper(id)) STORED"

  test("are refused before Postgres 18, unless they are left out; from 18 on they are told", async () => {
    const table = await w.table(COLUMNS)
    await w.sql(`INSERT INTO ${table} (id, val) VALUES ('a', '{}')`)
    if (w.version < 18) {
      const refusal = "The following columns are generated and cannot be included in the shape: up"
      await w.refuses({ table, offset: "-1" }, { columns: [`${refusal}. You can exclude them from the shape by explicitly listing which columns to fetch in the 'columns' query param`] })
      await w.refuses({ table, offset: "-1", columns: "id,up" }, { columns: [refusal] })
    } else {
      const shape = w.shape({ table })
      const [change] = await shape.changes(() => w.sql(`UPDATE ${table} SET id = 'b'`), 2)
      assert.equal(shape.log[0].value.up, "A")
      assert.equal(change.headers.operation, "delete")
      assert.equal(shape.values()[0].up, "B")
    }
    const without = w.shape({ table, columns: "id,val" })
    const [change] = await without.changes(() => w.sql(`UPDATE ${table} SET val = '[]'`))
    assert.equal(change.value.val, "[]")
  })

  test("virtual ones are never told", async (t) => {
    if (w.version < 18) return
    const table = await w.table("id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) VIRTUAL")
    const answer = await w.request({ table, offset: "-1" })
    assert.equal(answer.status, 400)
    assert.match(answer.body.errors.columns[0], /twice/)
  })
})

describe("what is no table", () => {
  test("views, sequences and system tables are refused", async () => {
    const table = await w.table("id int PRIMARY KEY")
    await w.sql(`CREATE VIEW ${table}_v AS SELECT * FROM ${table}; CREATE SEQUENCE ${table}_s`)
    for (const other of [`${table}_v`, `${table}_s`, `${table}_pkey`]) {
      const answer = await w.request({ table: other, offset: "-1" })
      assert.ok(answer.status >= 400 && answer.status < 500, `${other}: ${answer.status}`)
    }
  })
})
