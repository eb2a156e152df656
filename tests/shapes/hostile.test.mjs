// Where clauses and values that are made to hurt: much memory, much time, deep nesting. The server runs under a limit of memory that it would
// die of. It stays up, says what it refuses, and everything else goes on; also after a restart, which brings the same values again.

import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { test } from "node:test"
import { cluster, ownCluster, w, world } from "./support/own.mjs"
import { eventually } from "./support/world.mjs"

// Each statement that Postgres reads is in its log.
ownCluster({ log_min_duration_statement: 0 })

const MIB = 1 << 20
/** Address space. An idle server needs half of it. */
const LIMIT = 2560 * MIB
/** Memory in use, at most. */
const PEAK = 900 * MIB

const times = (what, n) => Array(n).fill(what).join(",")
const nested = (inner, n, f) => (n === 0 ? inner : nested(f(inner), n - 1, f))
const sixty = (what) => `concat(${times(what, 60)})`

/** Each is fine for short values. */
const CLAUSES = [
  `length(${sixty(sixty("t"))}) > 0`,
  `length(${sixty(sixty("t"))}) < 0 OR id = -1`,
  `id >= 0 AND ${sixty(sixty("t"))} <> 'x'`,
  `length(replace(t, 'a', t)) >= 0`,
  `replace(replace(t, 'a', u || u || u || u), 'a', t) <> 'x'`,
  `length(${sixty("u::char(10000000)::text")}) < 0`,
  `length(${nested("t", 8, (t) => `(${t}||${t})`)}) > 0`,
  `octet_length(${Array(90).fill("b").join(" || ")}) >= 0`,
  `cardinality(${Array(90).fill("ia").join(" || ")}) >= 0`,
  `cardinality(ARRAY[${times("t", 90)}]) > 0`,
  `length(${nested("t", 40, (t) => `(ARRAY[${t}])::text`)}) > 0`,
  `length(concat(${times("b", 90)})) > 0`,
  `length(concat(${times("j", 90)})) > 0`,
  `t LIKE '%${"a".repeat(2000)}b'`,
  `t LIKE u OR u LIKE t`,
  `t ILIKE ANY (ARRAY[${times("u", 50)}])`,
  `t NOT LIKE ALL (ARRAY[${times("u", 50)}])`,
  `${Array(60).fill("(n * n + 1)").join(" * ")} > 0`,
  `n * 1e900 * n / 3.1 > 0`,
  `n::text LIKE '%7%'`,
  `j @> t::jsonb OR id >= 0`,
  `j -> 'a' @> j -> 'b' OR id >= 0`,
  `j::text LIKE '%${"1".repeat(2000)}7'`,
  `ia @> ia AND ia && (ia || 7)`,
  `(ia[2:] || ia) @> ia`,
  `btrim(t, u || '${"xyz".repeat(500)}') <> 'q'`,
  `greatest(${times("t || u", 90)}) >= ''`,
  `upper(lower(upper(lower(t || t || t || t || t || t || t || t)))) <> 'x'`,
  `t = ANY (ta) OR ta @> ARRAY[t]`,
]

/** Each is refused for any rows. */
const REFUSED = [
  nested("id BETWEEN 1 AND 2", 60, (inner) => `(${inner}) BETWEEN SYMMETRIC false AND true`),
  `${nested("id", 30, (inner) => `nullif((${inner}) IN (id, 1 + id, 2 + id, 3 + id), true)::int`)} = 1`,
  `id = 1 AND (${Array(12).fill(`'${"a".repeat(4000)}' LIKE '%${"a".repeat(1000)}b'`).slice(0, 2).join(" OR ")})`,
]

const POISON = {
  long: "'" + "a".repeat(200_000) + "'",
  wild: "'" + "%a".repeat(1000) + "'",
  quoted: `repeat('"\\', 50000)`,
  document: "'" + JSON.stringify({ a: Array(20_000).fill(17), b: Array(20_000).fill(18) }) + "'",
  deep: "'" + "[".repeat(2000) + "]".repeat(2000) + "'",
  exponents: "'[" + Array(3000).fill("1e100000").join(",") + "]'",
}

async function streams() {
  const url = `${w.base}/v1/stream/beside`
  const put = await fetch(url, { method: "PUT", headers: { "content-type": "text/plain" } })
  assert.ok(put.status === 200 || put.status === 201, `${put.status}`)
  const words = `words ${Math.random()}`
  const append = await fetch(url, { method: "POST", headers: { "content-type": "text/plain" }, body: words })
  assert.ok(append.status < 300, `${append.status}`)
  assert.ok((await (await fetch(`${url}?offset=-1`)).text()).endsWith(words))
}

test(`${CLAUSES.length} clauses that make much of little, and values that make them: the server stays up, within its memory`, { timeout: 600000 }, async (t) => {
  await world({ serve: false, settings: { ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD: undefined } })
  w.wrap = ["prlimit", `--as=${LIMIT}`, "--"]
  await w.serve()
  const columns = "id int PRIMARY KEY, t text, u text, b bytea, n numeric, j jsonb, ia int[], ta text[]"
  const table = await w.table(columns, `(1, 'ab', 'b', '\\x01', 7, '{"a": [1], "b": [1]}', '{1,2}', '{x}')`)
  const other = await w.table("id int PRIMARY KEY, t text", "(1, 'a')")
  const plain = [await w.synced({ table }), await w.synced({ table, where: "id % 2 = 0" }), await w.synced({ table: other })]
  await streams()

  const ask = (where, more) => w.request({ table, where, offset: "-1", ...more })
  for (const where of REFUSED) {
    const told = await ask(where)
    assert.equal(told.status, 400, `${told.text.slice(0, 300)} for ${where.slice(0, 60)}`)
    assert.match(told.body.errors.where[0], /too much time or memory|more than \d+ parts/)
  }
  const read = readFileSync(join(cluster.folder, "server.log"), "utf8")
  assert.ok(read.includes("id % 2 = 0"), "Postgres reads what this server understands")
  for (const where of REFUSED) assert.ok(!read.includes(where.slice(0, 60)), `Postgres was given ${where.slice(0, 60)}`)

  const made = []
  const make = async () => {
    await Promise.all(
      CLAUSES.map(async (where) => {
        if (made.some((one) => one.where === where && !one.gone)) return
        const answer = await ask(where)
        assert.ok([200, 400, 503].includes(answer.status), `${answer.status} ${answer.text.slice(0, 300)} for ${where.slice(0, 60)}`)
        if (answer.status === 200) made.push({ where, handle: answer.header("electric-handle"), offset: answer.header("electric-offset"), gone: false })
      }),
    )
  }
  // Every existing shape equals Postgres's rows; clients of dropped ones get 409.
  const check = async () => {
    for (const shape of plain) await w.agrees(shape, { within: 60000 })
    for (const one of made.filter((one) => !one.gone)) {
      const answer = await ask(one.where, { offset: one.offset, handle: one.handle })
      assert.ok([200, 400, 409].includes(answer.status), `${answer.status} ${answer.text.slice(0, 300)} for ${one.where.slice(0, 60)}`)
      one.gone = answer.status !== 200
    }
    await streams()
    assert.equal((await w.request({}, { path: "/v1/health" })).status, 200)
    const peak = w.memory()
    assert.ok(peak < PEAK, `${Math.round(peak / MIB)} MiB of memory`)
  }

  await make()
  const begun = made.length
  assert.ok(begun > 20, `${begun} of them are shapes at first`)
  await check()
  let id = 10
  const poison = async () => {
    const insert = (values) => w.sql(`INSERT INTO ${table} (id, ${Object.keys(values).join(", ")}) VALUES (${id++}, ${Object.values(values).join(", ")})`)
    await insert({ t: POISON.long, u: POISON.wild })
    await insert({ t: POISON.quoted, u: "'x'" })
    await insert({ t: POISON.exponents, u: "'1'", j: POISON.document })
    await insert({ j: POISON.deep, t: POISON.deep })
    await insert({ n: "repeat('7', 100000)::numeric", t: "'1'" })
    await insert({ b: `decode(repeat('ab', 100000), 'hex')`, ia: "(SELECT array_agg(i) FROM generate_series(1, 30000) i)", ta: `array_fill('abcdefgh'::text, ARRAY[20000])` })
    await w.sql(`INSERT INTO ${other} VALUES (${id}, 'b'); UPDATE ${table} SET u = u || 'x' WHERE id % 3 = 0`)
  }
  await poison()
  await check()
  const gone = made.filter((one) => one.gone).length
  t.diagnostic(`${begun} shapes, ${gone} of them were too costly; ${Math.round(w.memory() / MIB)} MiB at most`)
  assert.ok(gone >= 8, `${gone} were dropped`)
  assert.match(w.log(), /a shape is dropped: evaluating the where clause for a row takes more time or memory/)
  const first = made.find((one) => one.where === CLAUSES[0])
  assert.ok(first.gone)
  const again = await ask(first.where)
  assert.equal(again.status, 400)
  assert.match(again.body.errors.where[0], /takes more time or memory than the limit/)

  // Several at once have their rows from one scan, in which the server evaluates them itself.
  const several = await Promise.all([7, 8, 9, 11].map((n) => ask(`${CLAUSES[n]} AND id > ${-n}`)))
  for (const answer of several) assert.ok([200, 400].includes(answer.status), answer.text.slice(0, 300))
  await check()

  // Killed and restarted: repeated values are refused again.
  await w.restart()
  for (const shape of plain) shape.upToDate = false
  await check()
  await w.sql(`DELETE FROM ${table} WHERE id > 2`)
  await make()
  assert.ok(made.filter((one) => !one.gone).length > 20)
  await poison()
  await w.restart()
  for (const shape of plain) shape.upToDate = false
  await check()
  await w.sql(`UPDATE ${table} SET t = left(t, 100) || 'z'; DELETE FROM ${table} WHERE id % 2 = 1`)
  await check()
  assert.deepEqual(plain.map((shape) => shape.refetches), [0, 0, 0])
})
