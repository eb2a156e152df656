// Accepted and refused where clauses, and their equal meaning in the snapshot and the log.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { World } from "./support/world.mjs"

let w
before(async () => (w = await World.start()))
after(() => w?.stop())

describe("transitions", () => {
  test("a row that comes to fit is an insert, one that no longer fits is a delete", async () => {
    const table = await w.table("id int PRIMARY KEY, n int, t text", "(1, 1, 'a')", "(2, 10, 'b')")
    const shape = w.shape({ table, where: "n > 5" })
    const [come, gone, both] = await shape.changes(
      () => w.sql(`BEGIN; UPDATE ${table} SET n = 6 WHERE id = 1; UPDATE ${table} SET n = 5 WHERE id = 2; UPDATE ${table} SET n = 7 WHERE id = 1; COMMIT`),
      3,
    )
    assert.equal(come.headers.operation, "insert")
    assert.deepEqual(come.value, { id: "1", n: "6", t: "a" })
    assert.equal(gone.headers.operation, "delete")
    assert.deepEqual(gone.value, { id: "2" })
    assert.equal(both.headers.operation, "update")
    assert.deepEqual(both.value, { id: "1", n: "7" })
  })

  test("a key that moves across the border is one half only", async () => {
    const table = await w.table("id int PRIMARY KEY, n int", "(1, 1)", "(20, 20)")
    const shape = w.shape({ table, where: "id < 10" })
    const changes = await shape.changes(() => w.sql(`BEGIN; UPDATE ${table} SET id = 3 WHERE id = 20; UPDATE ${table} SET id = 11 WHERE id = 1; COMMIT`), 2)
    assert.deepEqual(changes.map((m) => [m.headers.operation, m.value]), [["insert", { id: "3", n: "20" }], ["delete", { id: "1" }]])
    assert.equal(changes[1].headers.op_position, changes[0].headers.op_position + 2)
  })

  test("a column may decide without being chosen", async () => {
    const table = await w.table("id int PRIMARY KEY, a text, hidden int", "(1, 'x', 0)")
    const shape = w.shape({ table, columns: "id,a", where: "hidden = 1" })
    const [come, gone] = await shape.changes(async () => {
      await w.sql(`UPDATE ${table} SET hidden = 1`)
      await w.sql(`UPDATE ${table} SET hidden = 2`)
    }, 2)
    assert.deepEqual(come.value, { id: "1", a: "x" })
    assert.equal(gone.headers.operation, "delete")
  })

  test("whole rows of a shape that they leave are told with replica=full", async () => {
    const table = await w.table("id int PRIMARY KEY, n int, t text", "(1, 10, 'a')")
    const [gone] = await w.shape({ table, where: "n > 5", replica: "full" }).changes(() => w.sql(`UPDATE ${table} SET n = 1, t = 'b'`))
    assert.equal(gone.headers.operation, "delete")
    assert.deepEqual(gone.value, { id: "1", n: "10", t: "a" })
  })
})

describe("parameters", () => {
  test("are values, never SQL", async () => {
    const table = await w.table("id int PRIMARY KEY, t text", "(1, 'terrible')")
    const evil = `'nothing' OR true`
    assert.equal((await w.synced({ table, where: `t = ${evil}` })).rows.size, 1)
    const shape = await w.synced({ table, where: "t = $1", params: { 1: evil } })
    assert.equal(shape.rows.size, 0)
    await w.sql(`INSERT INTO ${table} VALUES (2, $1)`, [evil])
    await shape.until((s) => s.rows.size === 1)
  })

  test("take the type of what they are compared with", async () => {
    const table = await w.table("id int PRIMARY KEY, n int8, d date, u uuid, a int[]", "(1, 5, '2024-01-01', '00000000-0000-0000-0000-000000000001', '{1,2}')")
    const where = "n = $1 AND d < $2 AND u = $3 AND n = ANY($4) AND a @> $5"
    const params = { 1: "5", 2: "2024-06-01", 3: "00000000-0000-0000-0000-000000000001", 4: "{4,5,6}", 5: "{2}" }
    const shape = await w.synced({ table, where, params })
    assert.equal(shape.rows.size, 1)
    await w.sql(`INSERT INTO ${table} SELECT 2, n, d, u, a FROM ${table}; INSERT INTO ${table} SELECT 3, n, '2025-01-01', u, a FROM ${table} WHERE id = 1`)
    await w.agrees(shape)
    assert.equal(shape.rows.size, 2)
  })

  test("must be numbered, complete and of the right type", async () => {
    const table = await w.table("id int PRIMARY KEY, n int")
    for (const [where, params, field] of [
      ["n = $1", undefined, "where"],
      ["n = $2", { 1: "5" }, "where"],
      ["n = $1", { 1: "abc" }, "where"],
      ["n = $1", { x: "1" }, "params"],
      ["n = $1", { 1: "1", 3: "1" }, "params"],
    ]) {
      const answer = await w.request({ table, offset: "-1", where, params })
      assert.equal(answer.status, 400, `${where} ${JSON.stringify(params)}: ${answer.text}`)
      assert.equal(answer.body.message, "Invalid request")
      assert.ok(answer.body.errors[field], `${where} ${JSON.stringify(params)}: ${answer.text}`)
    }
  })
})

describe("refusals", () => {
  test("are told with the place of the error", async () => {
    const table = await w.table("id int PRIMARY KEY, t text")
    await w.refuses({ table, offset: "-1", where: "1 x 1" }, { where: ['At location 17: syntax error at or near "x"'] })
  })

  test("everything that is not one condition on the row", async () => {
    const table = await w.table("id int PRIMARY KEY, t text, j jsonb, n int")
    for (const where of [
      "nope = 1",
      "id",
      "1 + 1",
      "t = 1 AND",
      "true; DROP TABLE x",
      "true ORDER BY id",
      "true GROUP BY id",
      "true LIMIT 1",
      "true UNION SELECT true",
      "count(*) > 1",
      "row_number() OVER () = 1",
      "now() > '2024-01-01'",
      "pg_sleep(1) IS NULL",
      "EXISTS (SELECT 1)",
      "other.id = 1",
      "id = 'abc'",
      "(((((",
      "id = $0",
      "",
      "'",
      "/*",
      "t = E'\\x00'",
    ].filter(Boolean)) {
      const answer = await w.request({ table, offset: "-1", where })
      assert.equal(answer.status, 400, `${where}: ${answer.status} ${answer.text.slice(0, 200)}`)
      assert.ok(answer.body?.errors?.where, `${where}: ${answer.text}`)
    }
    assert.equal((await w.request({ table, offset: "-1" })).status, 200, "the server is well after all this")
  })

  test("a condition of absurd size or depth is answered, not died of", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const many = Array.from({ length: 3000 }, (_, i) => `id = ${i}`).join(" OR ")
    const deep = "(".repeat(3000) + "id = 1" + ")".repeat(3000)
    const nots = "NOT ".repeat(3000) + "id = 1"
    for (const where of [many, deep, nots]) {
      const answer = await w.request({}, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ table, offset: "-1", where, subset: {} }) })
      assert.ok([200, 400, 413].includes(answer.status), `${answer.status} ${answer.text.slice(0, 100)}`)
    }
    assert.equal((await w.request({ table, offset: "-1" })).status, 200)
  })
})

// Every clause is tried on rows that are there at first, and on the same rows as they come and change later: both must agree with Postgres.
describe("the language", () => {
  const COLUMNS = `id int PRIMARY KEY, i2 int2, i4 int4, i8 int8, f8 float8, num numeric, b bool, t text, vc varchar(20), ch char(4),
    d date, tm time, ts timestamp, tz timestamptz, iv interval, u uuid, ia int[], ta text[], bin bytea`
  const ROWS = [
    `1, 5, 5, 5, 5.5, 5.25, true, 'hello', 'Hello', 'ab', '2024-05-05', '05:05', '2024-05-05 05:05', '2024-05-05 05:05+00', '5 hours', '00000000-0000-0000-0000-000000000005', '{1,2,5}', '{a,b}', '\\x05'`,
    `2, -5, -5, -5, -5.5, -5.25, false, 'Hello%', 'help', 'cd', '2024-02-29', '23:59:59', '2023-12-31 23:59', '2023-12-31 23:59+00', '1 mon', '00000000-0000-0000-0000-0000000000ff', '{}', '{}', '\\xff00'`,
    `3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL`,
    `4, 0, 10, 9007199254740993, 'NaN', 10, true, '', '', '', 'infinity', '00:00', 'infinity', '-infinity', '0', '00000000-0000-0000-0000-000000000001', '{1,1,1}', '{"",c}', '\\x'`,
    `5, 3, 7, 3, 3, 3.0, false, 'a_b%c', 'HELLO', 'ab  ', '2024-05-06', '12:00', '2024-05-05 12:00', '2024-05-05 12:00+02', '36 hours', '00000000-0000-0000-0000-000000000003', '{3,7}', '{b,a}', '\\x00'`,
  ]
  const CLAUSES = [
    "true", "NOT false", "b", "NOT b", "b = true", "b <> true", "b IS TRUE", "b IS NOT TRUE", "b IS FALSE", "b IS UNKNOWN", "b IS NOT UNKNOWN",
    "i4 = 5", "i4 <> 5", "i4 < 5", "i4 <= 5", "i4 > 5", "i4 >= 5", "5 = i4", "i2 = 5", "i8 = 5", "f8 > 3", "f8 < 0", "num = 5.25", "num > 3", "i4 > i2", "f8 > i4",
    "i4 IS NULL", "i4 IS NOT NULL", "i4 IS DISTINCT FROM 5", "i4 IS NOT DISTINCT FROM 5", "t IS NOT DISTINCT FROM vc",
    "i4 IN (5, 7)", "i4 NOT IN (5, 7)", "t IN ('hello', '')", "i4 BETWEEN 0 AND 7", "i4 NOT BETWEEN 0 AND 7", "i4 BETWEEN SYMMETRIC 7 AND 0", "i4 NOT BETWEEN SYMMETRIC 7 AND 0",
    "i4 = 5 AND b", "i4 = 5 OR b", "(i4 = 5 OR i4 = -5) AND NOT b", "NOT (i4 = 5 AND t = 'hello')",
    "i4 + 1 = 6", "i4 - 1 > 3", "i4 * 2 = 10", "i4 / 2 = 2", "i4 ^ 2 = 25", "-i4 = 5", "@ i4 = 5", "|/ 25 = i4", "(i4 & 1) = 1", "(i4 | 2) = 7", "(i4 # 1) = 4", "~i4 = -6",
    "t = 'hello'", "t <> 'hello'", "t < 'i'", "t > 'H'", "t || 'x' = 'hellox'", "lower(vc) = 'hello'", "upper(t) = 'HELLO'", "vc = 'help'", "ch = 'ab'", "concat(t, 'x') = 'hellox'",
    "t LIKE 'hel%'", "t LIKE '%l_'", "t LIKE 'h%o'", "t NOT LIKE 'hel%'", "t ILIKE 'HEL%'", "t NOT ILIKE 'hel%'", "t LIKE '%'", "t LIKE ''", "t LIKE '_____'", "vc ILIKE '%LL%'",
    "d = '2024-05-05'", "d > '2024-03-01'", "d + 1 = '2024-05-06'", "d - 1 < '2024-05-05'", "tm > '06:00'", "ts >= '2024-01-01 00:00'", "tz < '2024-05-05 06:00+00'", "ts + interval '1 day' > '2024-05-06'",
    "ts - interval '1 hour' < ts", "iv = interval '5 hours'", "iv <> interval '1 mon'", "tz AT TIME ZONE 'UTC' = '2024-05-05 05:05'", "justify_hours(iv) = interval '1 day 12 hours'", "iv > '1 day'", "iv BETWEEN '0' AND '6 hours'", "iv IN ('30 days', '300 min')", "-iv < '-1 day'",
    "u = '00000000-0000-0000-0000-000000000005'", "u > '00000000-0000-0000-0000-000000000003'", "u IN ('00000000-0000-0000-0000-000000000005')",
    "5 = ANY(ia)", "1 = ALL(ia)", "i4 = ANY(ARRAY[5, 7])", "i4 = ANY('{5,10}')", "i4 > ALL('{0,4}')", "ia[1] = 1", "ia[2:3] = '{2,5}'", "ia @> '{1}'", "ia <@ '{1,2,3,5}'", "ia && '{7}'", "ta = '{a,b}'", "ta <> '{a,b}'", "'a' = ANY(ta)",
    "ARRAY[i4, 1] = '{5,1}'", "array_append(ia, 9) @> '{9}'", "array_prepend(9, ia) @> '{9}'", "array_cat(ia, '{9}') @> '{9}'", "array_ndims(ia) = 1",
    "coalesce(t, 'none') = 'none'", "greatest(i4, 6) = 6", "least(i4, 6) = 5", "i4::text = '5'", "'5'::int = i4", "i4::int8 = 5", "CAST(t AS text) = 'hello'", "num::int = 5", "f8::int4 = 3 AND f8 <> 'NaN'",
    "i4 = 5 OR NULL", "NULL::bool", "i4 = NULL", "(i4 > 0) = b", "b IS DISTINCT FROM (i4 > 0)",
  ]

  test(`${CLAUSES.length} clauses mean in the log what they mean in Postgres`, async (t) => {
    const table = await w.table(COLUMNS)
    const wrong = []
    const refused = []
    const shapes = []
    // Half of the rows first, so that each clause is asked both ways.
    await w.sql(`INSERT INTO ${table} VALUES (${ROWS.slice(0, 2).join("), (")})`)
    for (const where of CLAUSES) {
      const first = await w.request({ table, offset: "-1", where })
      if (first.status !== 200) refused.push(`${where}: ${first.status} ${first.text.slice(0, 120)}`)
      else shapes.push(await w.synced({ table, where }))
    }
    await w.sql(`INSERT INTO ${table} VALUES (${ROWS.join("), (")}) ON CONFLICT DO NOTHING`)
    // The first two change places; later the keyless one takes the content of the first.
    const set = "i2, i4, i8, f8, num, b, t, vc, ch, d, tm, ts, tz, iv, u, ia, ta, bin"
    await w.sql(`UPDATE ${table} a SET (${set}) = (SELECT ${set} FROM ${table} b WHERE b.id = 3 - a.id) WHERE id IN (1, 2)`)
    await w.sql(`INSERT INTO ${table} (id, ${set}) SELECT id + 10, ${set} FROM ${table}`)
    await w.sql(`UPDATE ${table} a SET (${set}) = (SELECT ${set} FROM ${table} b WHERE b.id = 1) WHERE id = 13`)
    await w.sql(`DELETE FROM ${table} WHERE id = 14`)
    const marker = await w.synced({ table })
    const lsn = BigInt(await w.one("SELECT (pg_current_wal_lsn() - '0/0')::text"))
    for (const shape of shapes) {
      const { where } = shape.params
      for (let i = 0; i < 50 && shape.lsn < lsn; i++) {
        await shape.sync()
        if (shape.lsn < lsn) await w.sql(`UPDATE ${table} SET i2 = i2 WHERE id = 1`)
      }
      const wanted = (await w.sql(`SELECT id FROM ${table} WHERE ${where} ORDER BY id::text COLLATE "C"`)).map((row) => row.id).sort()
      const got = shape.column("id")
      if (JSON.stringify(wanted) !== JSON.stringify(got)) wrong.push(`${where}: ${got} instead of ${wanted}`)
      const fresh = await w.request({ table, offset: "-1", where })
      assert.equal(fresh.header("electric-handle"), shape.handle)
    }
    void marker
    assert.deepEqual({ wrong, refused }, { wrong: [], refused: [] })
  })
})
