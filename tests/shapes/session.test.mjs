// The server's sessions have the same meaning under all settings of the role, the database, or both in combination.

import assert from "node:assert/strict"
import { afterEach, describe, test } from "node:test"
import { World } from "./support/world.mjs"

let w
afterEach(async () => {
  await w?.stop()
  w = undefined
})

// Settings that an administrator, or another program, may have made for sessions without their own.
const HOSTILE = {
  statement_timeout: "'100ms'", lock_timeout: "'1ms'", idle_in_transaction_session_timeout: "'100ms'", search_path: "evil, public", row_security: "off",
  IntervalStyle: "sql_standard", DateStyle: "'SQL, MDY'", TimeZone: "'Asia/Kathmandu'", bytea_output: "escape", extra_float_digits: "-15", lc_monetary: "'C'",
  default_transaction_read_only: "on", default_transaction_isolation: "serializable", default_transaction_deferrable: "on",
  standard_conforming_strings: "off", backslash_quote: "on", transform_null_equals: "on", array_nulls: "off", quote_all_identifiers: "on",
  client_min_messages: "debug1", gin_fuzzy_search_limit: "1", jit: "on", jit_above_cost: "0", client_encoding: "'LATIN1'", wal_sender_timeout: "'1s'",
  xmlbinary: "hex", default_text_search_config: "'pg_catalog.simple'", synchronous_commit: "off",
}
// Of newer versions.
const LATER = { 17: { transaction_timeout: "'100ms'" } }

// One row of each kind of value that settings change the look of.
const COLUMNS = "id int PRIMARY KEY, t text, d date, at timestamptz, i interval, b bytea, f float8, r float4, n numeric, a text[], x boolean, o oid"
const row = (id) =>
  `(${id}, E'back\\\\slash ''quote'' \\u00e9 \\u20ac', '2024-02-03', '2024-02-03 04:05:06.789+00', '1 year 2 months 3 days 04:05:06.7', '\\x00ff27', 0.1::float8 + 0.2, 0.1, 1.50, ARRAY['a', NULL, 'b'], true, 7)`

describe("settings of the role and of the database", () => {
  for (const of of ["ROLE", "DATABASE", "ROLE IN DATABASE"])
    test(`${of}: rows and changes look as ever, and time limits are the server's own`, async () => {
      w = await World.start({ serve: false })
      const role = w.name("hostile")
      await w.sql(`SET TimeZone = 'UTC'; SET IntervalStyle = 'iso_8601'; SET DateStyle = 'ISO, DMY'; SET bytea_output = 'hex'; SET extra_float_digits = 1`)
      await w.sql(`CREATE ROLE ${role} LOGIN REPLICATION; GRANT CREATE ON DATABASE ${w.database} TO ${role}; CREATE SCHEMA evil AUTHORIZATION ${role}`)
      w.stops.push(async () => {
        await w.kill()
        await w.sql(`DROP OWNED BY ${role} CASCADE`)
        await w.sql(`DROP ROLE ${role}`)
      })
      const table = await w.table(COLUMNS, row(1), row(2))
      const other = await w.table("id int PRIMARY KEY, big text")
      // Long enough that a limit of 100 ms would end its snapshot.
      await w.sql(`INSERT INTO ${other} SELECT n, repeat(md5(n::text), 20) FROM generate_series(1, 60000) n`)
      await w.sql(`ALTER TABLE ${table} OWNER TO ${role}; ALTER TABLE ${other} OWNER TO ${role}; CREATE TABLE evil.${table} (id int PRIMARY KEY)`)
      const target = { ROLE: `ROLE ${role}`, DATABASE: `DATABASE ${w.database}`, "ROLE IN DATABASE": `ROLE ${role} IN DATABASE ${w.database}` }[of]
      const settings = { ...HOSTILE, ...(w.version >= 17 ? LATER[17] : {}) }
      for (const [name, value] of Object.entries(settings)) await w.sql(`ALTER ${target} SET ${name} = ${value}`)
      w.url = w.url.replace("postgres@", `${role}@`)
      await w.serve()
      const clause = `t LIKE 'back\\\\slash%' AND at > '2024-02-03 04:05:06+00' AND i > 'P1Y' AND NOT (t = NULL) IS TRUE`
      const shapes = [await w.synced({ table }), await w.synced({ table, where: clause }), await w.synced({ table, where: `id IN (SELECT id FROM ${other} WHERE big <> '')` })]
      const large = await w.synced({ table: other, columns: "id" })
      assert.equal(large.rows.size, 60000)
      await w.sql(`INSERT INTO ${table} VALUES ${row(3)}; UPDATE ${table} SET r = 0.2, id = 4 WHERE id = 2; DELETE FROM ${other} WHERE id > 58000`)
      for (const shape of shapes) await w.agrees(shape)
      await w.agrees(large, { columns: "id" })
      await w.restart()
      await w.sql(`INSERT INTO ${table} VALUES ${row(5)}`)
      for (const shape of shapes) shape.upToDate = false
      for (const shape of shapes) await w.agrees(shape)
      assert.deepEqual(shapes.map((shape) => shape.refetches), [0, 0, 0])
      // Rows and changes have the same text to the letter.
      const fresh = await w.synced({ table, where: "id > 0" })
      assert.deepEqual([...fresh.rows.values()].sort((a, b) => a.id - b.id).map((one) => one.t), [...shapes[0].rows.values()].sort((a, b) => a.id - b.id).map((one) => one.t))
      assert.doesNotMatch(w.log(), /ERROR|timeout|canceling/)
    })
})
