// Access per shape: a token's rights, and every known attempt to exceed them.
//
// The table has rows of owner 7, the client, and of others; a column that is not granted holds SECRET, rows of others hold OTHER. Neither may
// be in any byte of any answer under a token.

import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { writeFileSync } from "node:fs"
import { connect } from "node:net"
import { join } from "node:path"
import { after, before, describe, test } from "node:test"
import { promisify } from "node:util"
import { Shape } from "./support/shape.mjs"
import { World, eventually, sleep } from "./support/world.mjs"

globalThis.window ??= globalThis
globalThis.document ??= { hidden: false, addEventListener() {}, removeEventListener() {} }
const { FetchError, Shape: ClientShape, ShapeStream } = await import("@electric-sql/client")

const run = promisify(execFile)
const SECRET = "s3cret"

let w
before(async () => (w = await World.start({ settings: { ELECTRIC_INSECURE: undefined, ELECTRIC_SECRET: SECRET } })))
after(() => w?.stop())

// ---- tokens, and their holders

/** A signed token: grants as `table=…&where=…`, made beside the server as an operator would. */
async function signed(grants, { expires = "1h", more = [] } = {}) {
  const shapes = [grants].flat().flatMap((grant) => ["--shape", grant])
  const { stdout } = await run(process.env.THALWEG_BIN, ["token", "sign", "--data", w.data, "--expires", expires, ...shapes, ...more])
  return stdout.trim()
}

const bearer = (token) => ({ authorization: `Bearer ${token}` })
/** The world as the token's owner sees it: every answer is searched for values that he may not see. */
function as(token, { seen = () => {} } = {}) {
  return {
    request: async (params, { headers, ...options } = {}) => {
      const answer = await w.request(params, { ...options, headers: { ...bearer(token), ...headers } })
      const all = answer.text + JSON.stringify([...answer.headers])
      assert.doesNotMatch(all, /OTHER|SECRET/, `${options.method ?? "GET"} ${JSON.stringify(params)}`)
      seen(answer)
      return answer
    },
  }
}
const withSecret = (params, options) => w.request({ ...params, secret: SECRET }, options)

const COLUMNS = "id int PRIMARY KEY, owner int, org int, title text, secret text, tags text[] DEFAULT '{}', extra jsonb DEFAULT '{}', num numeric, day date"
/** Rows 1 to 4 are of owner 7, 5 to 8 of owner 8; the newest of each has a title that a cast to int fails on. */
async function items() {
  const table = await w.table(COLUMNS)
  await w.sql(`INSERT INTO ${table} SELECT n, 7, 1, 'mine ' || n, 'SECRET ' || n, ARRAY['mine'], '{"k": "mine"}' FROM generate_series(1, 4) n`)
  await w.sql(`INSERT INTO ${table} SELECT n, 8, 2, 'OTHER ' || n, 'SECRET OTHER ' || n, ARRAY['OTHER'], '{"k": "OTHER"}' FROM generate_series(5, 8) n`)
  return table
}
const MINE = "columns=id,title,tags,extra"
const mine = (table) => `table=${table}&where=owner=$1&params[1]=7&${MINE}`
const ids = (rows) => [...rows.values()].map((row) => Number(row.id)).sort((a, b) => a - b)

/** All of a shape up to now, under a token. */
async function read(token, params) {
  const shape = new Shape(as(token), params)
  await shape.sync()
  return shape
}

// ---- granted requests work

describe("a token", () => {
  test("gives its rows and columns to a client that asks for the table alone", async () => {
    const table = await items()
    const shape = await read(await signed(mine(table)), { table })
    assert.deepEqual(ids(shape.rows), [1, 2, 3, 4])
    assert.deepEqual(Object.keys([...shape.rows.values()][0]).sort(), ["extra", "id", "tags", "title"])
    assert.deepEqual(Object.keys(JSON.parse(shape.schema ? JSON.stringify(shape.schema) : "{}")).sort(), ["extra", "id", "tags", "title"])
  })

  test("lets changes come and go with the rows that it is for", async () => {
    const table = await items()
    const token = await signed(mine(table))
    const shape = await read(token, { table })
    await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (9, 7, 1, 'mine 9', 'SECRET 9')`))
    await w.sql(`INSERT INTO ${table} VALUES (10, 8, 2, 'OTHER 10', 'SECRET 10')`)
    await w.sql(`UPDATE ${table} SET title = 'OTHER', secret = 'SECRET' WHERE id = 5`)
    await shape.changes(() => w.sql(`UPDATE ${table} SET owner = 8, title = 'OTHER now', secret = 'SECRET now' WHERE id = 9`))
    await shape.changes(() => w.sql(`UPDATE ${table} SET owner = 7, title = 'mine now', secret = 'SECRET now' WHERE id = 10`))
    await shape.until(() => ids(shape.rows).join() === "1,2,3,4,10")
    assert.doesNotMatch(JSON.stringify(shape.log), /OTHER|SECRET/)
  })

  test("shows of a row that leaves and of one that comes only what it may, with replica=full too", async () => {
    const table = await items()
    const token = await signed(mine(table))
    for (const replica of ["full", "default"]) {
      const shape = await read(token, { table, replica })
      await shape.changes(() => w.sql(`UPDATE ${table} SET title = 'mine with ${replica}', secret = 'SECRET ${replica}' WHERE id = 1`))
      await shape.changes(() => w.sql(`UPDATE ${table} SET owner = 8, title = 'OTHER left', tags = '{OTHER}', extra = '{"k":"OTHER"}' WHERE id = 2`))
      await shape.changes(() => w.sql(`UPDATE ${table} SET id = 22, owner = 8, title = 'OTHER key' WHERE id = 3`))
      await shape.changes(() => w.sql(`UPDATE ${table} SET owner = 7, title = 'mine came', tags = '{mine}', extra = '{}' WHERE id = 6`))
      await shape.until(() => ids(shape.rows).join() === "1,4,6")
      assert.doesNotMatch(JSON.stringify(shape.log), /OTHER|SECRET/, replica)
      await w.sql(`UPDATE ${table} SET owner = 7, title = 'mine ' || id, tags = '{mine}', extra = '{}' WHERE id IN (2, 22)`)
      await w.sql(`UPDATE ${table} SET id = 3 WHERE id = 22`)
      await w.sql(`UPDATE ${table} SET owner = 8, title = 'OTHER 6', tags = '{OTHER}', extra = '{}' WHERE id = 6`)
    }
  })

  test("is narrowed by what a client asks for, and never widened", async () => {
    const table = await items()
    const token = await signed(mine(table))
    for (const [params, expected] of [
      [{ where: "id > 2" }, [3, 4]],
      [{ where: "id = $1 OR id = $2", params: { 1: "1", 2: "5" } }, [1]],
      [{ where: "title LIKE 'mine%' AND NOT id = 1" }, [2, 3, 4]],
      [{ where: "true" }, [1, 2, 3, 4]],
      [{ where: "id IS NOT NULL OR true" }, [1, 2, 3, 4]],
      [{ where: "NOT (id = 1) OR id = 1" }, [1, 2, 3, 4]],
      [{ where: "id IN (1, 6, 7) -- and nothing after it" }, [1]],
      [{ where: "/* ) OR (true */ id = 4" }, [4]],
      [{ where: "title = 'x) OR (1=1' OR id = 2" }, [2]],
      [{ where: "lower(title) = 'mine 3'" }, [3]],
      [{ where: "'mine' = ANY (tags)" }, [1, 2, 3, 4]],
      [{ where: "extra ->> 'k' = 'OTHER'" }, []],
      [{ where: "id > 4" }, []],
      [{ where: "id = 1", params: { 1: "8", 2: "8" } }, [1]],
      [{ columns: "id" }, [1, 2, 3, 4]],
      [{ columns: "id,title", where: "id = 1" }, [1]],
      [{ queryable_columns: "id,title" }, [1, 2, 3, 4]],
      [{ log: "changes_only" }, []],
    ]) {
      const shape = await read(token, { table, ...params })
      assert.deepEqual(ids(shape.rows), expected, JSON.stringify(params))
    }
  })

  test("gives subsets of its rows only", async () => {
    const table = await items()
    const me = as(await signed(mine(table)))
    for (const [subset, expected] of [
      [{ order_by: "id", limit: "100" }, [1, 2, 3, 4]],
      [{ where: "id > 2" }, [3, 4]],
      [{ where: "id > 2 OR true" }, [1, 2, 3, 4]],
      [{ where: "id = $1", params: { 1: "6" } }, []],
      [{ order_by: "title DESC", limit: "1", offset: "1" }, [3]],
    ]) {
      const got = await me.request({ table, offset: "-1", subset })
      assert.equal(got.status, 200, got.text)
      assert.deepEqual(got.body.data.map((row) => Number(row.value.id)).sort(), expected, JSON.stringify(subset))
      const flat = { ...subset, params: subset.params, limit: subset.limit && Number(subset.limit), offset: subset.offset && Number(subset.offset) }
      for (const body of [flat, { subset: flat }]) {
        const posted = await me.request({ table, offset: "-1" }, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } })
        assert.equal(posted.status, 200, posted.text)
        assert.deepEqual(posted.body.data.map((row) => Number(row.value.id)).sort(), expected, JSON.stringify(body))
      }
    }
  })

  test("of several tables gives each its own, and subqueries on those that are granted whole", async () => {
    const [table, tags] = [await items(), await w.table("id int PRIMARY KEY, item int, name text", "(1, 1, 'a'), (2, 6, 'a'), (3, 2, 'b')")]
    const token = await signed([mine(table), `table=${tags}`])
    assert.deepEqual(ids((await read(token, { table: tags })).rows), [1, 2, 3])
    const shape = await read(token, { table, where: `id IN (SELECT item FROM ${tags} WHERE name = 'a')` })
    assert.deepEqual(ids(shape.rows), [1])
    await shape.changes(() => w.sql(`UPDATE ${tags} SET name = 'a' WHERE id = 3`))
    await shape.until(() => ids(shape.rows).join() === "1,2")
  })

  test("may have a subquery of its own: rows come and go with memberships", async () => {
    const table = await items()
    const members = await w.table("person int, org int, PRIMARY KEY (person, org)", "(7, 1), (8, 2)")
    const token = await signed(`table=${table}&where=org IN (SELECT org FROM ${members} WHERE person = $1)&params[1]=7&columns=id,title`)
    const shape = await read(token, { table })
    assert.deepEqual(ids(shape.rows), [1, 2, 3, 4])
    assert.deepEqual(ids((await read(token, { table, where: "id > 3" })).rows), [4])
    await w.sql(`UPDATE ${table} SET title = 'shared ' || id WHERE org = 2`)
    await shape.changes(() => w.sql(`INSERT INTO ${members} VALUES (7, 2)`), 4)
    await shape.until(() => ids(shape.rows).length === 8)
    await w.sql(`DELETE FROM ${members} WHERE person = 7 AND org = 2`)
    await shape.until(() => ids(shape.rows).join() === "1,2,3,4")
    const asked = await as(token).request({ table, offset: "-1", where: `org IN (SELECT org FROM ${members})` })
    assert.equal(asked.status, 403)
  })
})

// ---- everything else does not

/** Requests under a token for the rows of owner 7 with four columns; all are refused, with a status, and say nothing. */
const ATTEMPTS = [
  // clauses that would not stay in their parentheses
  ...["1=1) OR (1=1", "1=1) OR (1=1 --", "true) --", "true /*", "1=1)) OR ((1=1", "') OR (1=1", "true; SELECT 1", "true UNION SELECT 1", "id = 1 OR", "", "\\"]
    .filter((where) => where)
    .map((where) => [`where ${where}`, { where }, 400]),
  ["a parameter of the grant", { where: "owner = $1", params: { 1: "8" } }, 403],
  ["a parameter that is not sent", { where: "id = $1" }, 400],
  ["the grant's parameter by its number", { where: "id = $2", params: { 1: "5" } }, 400],
  ["parameter 0", { where: "id = $0", params: { 0: "5" } }, 400],
  // columns that are not granted
  ["columns", { columns: "id,secret" }, 403],
  ["quoted columns", { columns: 'id,"secret"' }, 403],
  ["columns in capitals", { columns: "ID,SECRET" }, 403],
  ["columns of the grant's own clause", { columns: "id,owner" }, 403],
  ["columns as a list", { "columns[]": "secret" }, 403],
  ["queryable columns", { queryable_columns: "id,secret" }, 403],
  ...[
    "secret LIKE 'SECRET%'",
    '"secret" > \'S\'',
    "$T.secret = 'x'",
    "public.$T.secret = 'x'",
    "owner = 8",
    "owner IS NOT NULL",
    "coalesce(secret, title) = 'x'",
    "title = secret",
    "secret::text = 'x'",
    "length(secret) > 3",
    "'x' IN (title, secret)",
    "secret IS DISTINCT FROM 'x'",
    "(id, secret) = (1, 'x')",
    "'{SECRET}' @> ARRAY[secret]",
    "NOT (true AND NOT (id = 1 AND secret > 'a'))",
    "no_such_column = 1",
    "$T = $T",
  ].map((where) => [`a clause on what is not granted: ${where}`, { where }, 403]),
  // tables that are not granted
  ...["users", "public.users", "pg_catalog.pg_authid", "pg_shadow", '"$T "', "$T_", "x.$T", '"public.$T"', "PG_CLASS"].map((table) => [`the table ${table}`, { table }, 403]),
  ...["users", "public.users", "pg_catalog.pg_authid", "$T", "public.$T", '"$T"', "information_schema.tables"].map((inner) => [
    `a subquery on ${inner}`,
    { where: `id IN (SELECT id FROM ${inner})` },
    403,
  ]),
  ["a subquery in a subquery", { where: "id IN (SELECT id FROM $T WHERE id IN (SELECT id FROM users))" }, 403],
  ["a subquery that is correlated", { where: "id IN (SELECT id FROM users WHERE users.id = $T.id)" }, 403],
  ["EXISTS", { where: "EXISTS (SELECT 1 FROM users)" }, 400],
  // operations that fail on another owner's row, and would reveal it
  ...["1/(id-5) > 0", "1 % (id - 5) = 0", "title::int = 1", "CAST(title AS int) > 0", "title::date > '2020-01-01'", "id + 2147483640 > 0", "-id > 0", "title LIKE 'OTHER\\'", "title LIKE title || '\\'", "extra::text::int = 1", "int4(title) = 1", "id::int2 = 1"].map(
    (where) => [`a clause that may fail: ${where}`, { where }, 403],
  ),
  ["functions that do something", { where: "pg_sleep(1) IS NULL" }, 400],
  ["functions that tell something", { where: "current_setting('is_superuser') = 'on'" }, 400],
  ["the user", { where: "current_user = 'postgres'" }, 400],
  ["CASE", { where: "CASE WHEN id = 5 THEN 1/0 = 1 ELSE true END" }, 400],
  // subsets
  ...["secret > 'S'", "owner = 8", "no_such_column = 1"].map((where) => [`a subset on what is not granted: ${where}`, { subset: { where } }, 403]),
  ["a subset that may fail", { subset: { where: "1/(id-5) > 0" } }, 403],
  ["a subset with a subquery", { subset: { where: "id IN (SELECT id FROM users)" } }, 403],
  ["a subset that breaks out", { subset: { where: "true) OR (true" } }, 400],
  ["a subset ordered by what is not granted", { subset: { order_by: "secret", limit: "1" } }, 400],
  ["a subset ordered by the grant's column", { subset: { order_by: "owner DESC", limit: "1" } }, 400],
  ["a subset ordered by an expression", { subset: { order_by: "(SELECT secret FROM $T LIMIT 1)", limit: "1" } }, 400],
  ["a subset with a limit that is SQL", { subset: { order_by: "id", limit: "1; SELECT 1" } }, 400],
]

test("nothing that a request can say gets more than the token gives", async (t) => {
  const table = await items()
  await w.sql("CREATE TABLE IF NOT EXISTS users (id int PRIMARY KEY, name text)")
  await w.sql("INSERT INTO users VALUES (1, 'OTHER SECRET') ON CONFLICT DO NOTHING")
  const me = as(await signed(mine(table)))
  const put = (value) => JSON.parse(JSON.stringify(value).replaceAll("$T", table))
  for (const [what, params, status] of ATTEMPTS) {
    await t.test(what, async () => {
      const query = { table, offset: "-1", ...put(params) }
      const got = await me.request(query)
      assert.equal(got.status, status, got.text)
      assert.ok(got.text.length < 2000)
      if (status === 403) {
        assert.match(got.body.code, /^(scope_missing|column_not_granted|where_not_granted)$/)
        assert.equal(got.header("www-authenticate"), 'Bearer realm="thalweg"')
      }
      assert.equal(got.header("cache-control"), "no-store")
      // In every other way to ask, too: with a handle, live, by events, by HEAD, in the body of a POST.
      const shape = await me.request({ table, offset: "-1" })
      const handle = shape.header("electric-handle")
      const later = { offset: "0_0", handle }
      for (const more of [later, { ...later, live: "true" }, { ...later, live: "true", live_sse: "true" }, { offset: "now" }]) {
        // Events concern the shape: the order of subsets is not checked.
        if (more.live_sse && params.subset && status === 400) continue
        const again = await me.request({ ...query, ...more })
        assert.equal(again.status, status, `${JSON.stringify(more)} ${again.text}`)
      }
      assert.equal((await me.request(query, { method: "HEAD" })).status, status)
      const { offset, subset, ...definition } = query
      const body = { ...(definition["columns[]"] ? { columns: ["id", definition["columns[]"]] } : definition), params: undefined, where: undefined, ...(subset ? { subset } : {}) }
      const url = { table, offset, where: definition.where, params: definition.params, columns: definition["columns[]"] && `id,${definition["columns[]"]}` }
      const posted = await me.request(url, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } })
      assert.equal(posted.status, status, posted.text)
    })
  }
  // And it still works.
  assert.equal((await me.request({ table, offset: "-1" })).status, 200)
})

test("a grant's own clause that fails on a row does not repeat the row", async () => {
  const table = await items()
  for (const where of ["title::int > 0", "1 / (owner - 8) > 0"]) {
    const got = await as(await signed(`table=${table}&where=${where}`)).request({ table, offset: "-1" })
    assert.equal(got.status, 400, got.text)
    assert.match(got.text, /cannot be evaluated for some row \(22/)
    assert.doesNotMatch(got.text, /mine|OTHER|integer/)
  }
  const log = await eventually(async () => w.log().match(/a shape could not be made.*(22P02)/g)?.join("\n"), { what: "the log's line" })
  assert.doesNotMatch(log, /mine|OTHER/)
})

test("errors count places in the client's own clause, and name no column that is not granted", async () => {
  const table = await items()
  const [whole, part] = [as(await signed(`table=${table}&columns=id,title`)), as(await signed(mine(table)))]
  for (const where of ["lower(id) = 'x'", "id = 1 AND title > 1", "id"]) {
    const [expected, got] = [await whole.request({ table, where, offset: "-1" }), await part.request({ table, where, offset: "-1" })]
    assert.equal(got.status, 400, got.text)
    assert.match(got.text, /At location \d+/)
    assert.deepEqual(got.body, expected.body)
  }
  const got = await as(await signed(`table=${table}&columns=title`)).request({ table, offset: "-1" })
  assert.equal(got.status, 400, got.text)
  assert.match(got.text, /must include all primary key columns"/)
})

test("a cast that nobody wrote and that fails on a hidden row is refused, whatever the row has", async () => {
  const members = await w.table("person int, org int, PRIMARY KEY (person, org)", "(7, 1), (8, 2)")
  for (const grant of ["owner=7", `org IN (SELECT org FROM ${members} WHERE person = 7)`]) {
    for (const title of ["OTHER", "mine"]) {
      const table = await items()
      await w.sql(`UPDATE ${table} SET title = '${title}', num = '1e50', day = '290000-01-01' WHERE owner = 8`)
      const me = as(await signed(`table=${table}&where=${grant}&columns=id,title,num,day`))
      for (const where of [
        "title < 'OTHER' OR coalesce(num, 1::real) > 0",
        "title < 'OTHER' OR num > 1e10::real",
        "title < 'OTHER' OR day < '2030-01-01'::timestamp",
        "title < 'OTHER' OR day < ('9' || 'x')::date",
        "title < 'OTHER' OR NOT num BETWEEN 1 AND 2::real",
      ]) {
        for (const params of [{ where }, { subset: { where } }]) {
          const got = await me.request({ table, offset: "-1", ...params })
          assert.deepEqual([got.status, got.body.code], [403, "where_not_granted"], `${grant}, ${title}: ${got.text}`)
        }
      }
      for (const where of ["num > 1.5 OR num IS NULL", "day < '2030-01-01' OR day IS NULL"]) {
        assert.deepEqual(ids((await read(await signed(`table=${table}&where=${grant}&columns=id,num,day`), { table, where })).rows), [1, 2, 3, 4])
      }
    }
  }
  assert.doesNotMatch(w.log(), /out of range/)
})

test("a clause that takes too long for a row tells nothing of rows that the token hides", async () => {
  // Every operation is allowed. It takes too long for each row that gets as far.
  const one = `length(${"lower(".repeat(30)}coalesce(nullif(title, title), $1)${")".repeat(30)}) = 1`
  const asked = { where: `title = 'OTHER' AND (${Array(8).fill(one).join(" OR ")})`, params: { 1: "x".repeat(6000) } }
  const members = await w.table("person int, org int, PRIMARY KEY (person, org)", "(7, 1), (8, 2)")
  for (const [grant, hidden] of [
    ["owner <> 8", "(9, NULL, 1, 'OTHER')"],
    ["org <> 2 AND owner <> 8", "(9, NULL, NULL, 'OTHER')"],
    [`org NOT IN (SELECT org FROM ${members} WHERE person = 8)`, "(9, 8, 2, 'OTHER')"],
    [`(owner = 6 OR org NOT IN (SELECT org FROM ${members} WHERE person = 8))`, "(9, 8, 2, 'OTHER')"],
  ]) {
    const table = await items()
    const shape = await read(await signed(`table=${table}&where=${grant}&${MINE}`), { table, ...asked })
    const plain = await read(await signed(`table=${table}&where=${grant}&${MINE}`), { table })
    await w.sql(`INSERT INTO ${table} (id, owner, org, title) VALUES ${hidden}`)
    await plain.changes(() => w.sql(`INSERT INTO ${table} (id, owner, org, title) VALUES (10, 7, 1, 'mine 10')`))
    await shape.sync()
    assert.deepEqual([shape.refetches, ids(plain.rows)], [0, [1, 2, 3, 4, 10]], grant)
  }
})

test("a clause that is too costly for a row that is not granted tells nothing of the row", async () => {
  const members = await w.table("person int, org int, PRIMARY KEY (person, org)")
  await w.sql(`INSERT INTO ${members} VALUES (7, 1), (8, 2)`)
  // For titles from n on it costs more than an evaluation may, for others next to nothing.
  const costly = "coalesce(nullif(title, title), $1) LIKE $2"
  const params = { 1: "A".repeat(7000), 2: `%${"A".repeat(1000)}b%` }
  const comes = { where: `title = 'mine' OR (title > 'n' AND ${costly})`, params }
  const leaves = { where: `title < 'n' OR ${costly}`, params }
  const orgs = (person) => `(SELECT org FROM ${members} WHERE person = ${person})`
  for (const [what, grant, asked, change] of [
    ["null for the grant", "owner <> 8", comes, (table, id, title) => `INSERT INTO ${table} VALUES (${20 + id}, NULL, 2, '${title}')`],
    ["not granted by a subquery", `org NOT IN ${orgs(8)}`, comes, (table, id, title) => `INSERT INTO ${table} VALUES (${20 + id}, 8, 2, '${title}')`],
    ["one that leaves what is granted", `org IN ${orgs(7)}`, leaves, (table, id, title) => `UPDATE ${table} SET org = 2, title = '${title}' WHERE id = ${id}`],
  ]) {
    const table = await items()
    const shape = await read(await signed(`table=${table}&where=${grant}&columns=id,title`), { table, ...asked })
    const handle = shape.handle
    for (const [id, title] of [[1, "aa"], [2, "zz"], [3, "aa"]]) {
      await w.sql(change(table, id, title))
      // One that is granted and comes later: when it is there, the other one was looked at.
      await w.sql(`INSERT INTO ${table} VALUES (${30 + id}, 7, 1, 'mine')`)
      await shape.until(() => ids(shape.rows).includes(30 + id))
      assert.equal(shape.handle, handle, `${what}, ${title}: the shape is the same one`)
    }
  }
})

test("a stranger sends no body", async () => {
  const { hostname, port } = new URL(w.base)
  for (const [what, head] of [["nothing", ""], ["a token that is none", "authorization: Bearer tws1.x.y\r\n"]]) {
    const socket = connect(Number(port), hostname)
    const ended = new Promise((resolve) => socket.on("close", resolve))
    let text = ""
    socket.on("data", (data) => (text += data)).on("error", () => {})
    // Nothing of the body comes: the answer does.
    socket.write(`POST /v1/shape?table=items&offset=-1 HTTP/1.1\r\nHost: ${hostname}:${port}\r\n${head}Content-Length: 30000000\r\n\r\n`)
    await eventually(() => text.includes("\r\n\r\n"), { what: `an answer to ${what}` })
    assert.match(text, /^HTTP\/1.1 401 /)
    socket.end()
    await ended
  }
})

test("a table in the body of a POST is the one that counts, and is looked at", async () => {
  const table = await items()
  const me = as(await signed(mine(table)))
  await w.sql("CREATE TABLE IF NOT EXISTS users (id int PRIMARY KEY, name text)")
  const post = (params, body) => me.request(params, { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } })
  assert.equal((await post({ table, offset: "-1" }, { table: "users" })).status, 403)
  assert.equal((await post({ table: "users", offset: "-1" }, { table })).status, 200)
  assert.equal((await post({ table, offset: "-1" }, { columns: "id,secret" })).status, 403)
  assert.equal((await post({ table, offset: "-1", columns: "id" }, { columns: null })).status, 200)
  assert.equal((await post({ table, offset: "-1" }, { queryable_columns: ["id", "owner"] })).status, 403)
})

test("parameters that stand twice do not add up to more", async () => {
  const table = await items()
  const token = await signed(mine(table))
  await w.sql("CREATE TABLE IF NOT EXISTS users (id int PRIMARY KEY, name text)")
  for (const [query, status] of [
    [`table=${table}&table=users&offset=-1`, 403],
    [`table=users&table=${table}&offset=-1`, 200],
    [`table=${table}&offset=-1&columns=id,secret&columns=id`, 200],
    [`table=${table}&offset=-1&columns=id&columns=id,secret`, 403],
    [`table=${table}&offset=-1&where=id%3D1&where=secret%3D'x'`, 403],
    [`t%61ble=users&offset=-1`, 403],
    [`table=${table}&offset=-1&where=id=$1&params[1]=1&params%5B1%5D=5`, 200],
    [`table=${table}&offset=-1&subset__where=id>0&subset[where]=secret>'a'`, 403],
  ]) {
    const got = await fetch(`${w.base}/v1/shape?${query}`, { headers: bearer(token) })
    const text = await got.text()
    assert.equal(got.status, status, `${query} ${text}`)
    assert.doesNotMatch(text, /OTHER|SECRET/)
  }
})

describe("handles", () => {
  test("of another shape give nothing of it", async () => {
    const table = await items()
    const me = as(await signed(mine(table)))
    const all = await withSecret({ table, offset: "-1" })
    assert.match(all.text, /OTHER/)
    const stolen = all.header("electric-handle")
    const own = (await me.request({ table, offset: "-1" })).header("electric-handle")
    assert.notEqual(own, stolen)
    for (const more of [{}, { live: "true" }, { live: "true", live_sse: "true" }, { where: "id > 0" }, { subset: { where: "id > 0" } }]) {
      const got = await me.request({ table, offset: all.header("electric-offset"), handle: stolen, ...more })
      assert.equal(got.status, 409, got.text)
      assert.notEqual(got.header("electric-handle"), stolen)
      assert.equal(got.header("cache-control"), "private, no-cache")
    }
    assert.equal((await me.request({ offset: "0_0", handle: stolen })).status, 400, "a handle alone is no shape")
  })

  test("are shared by those who may see the same, and by nobody else", async () => {
    const table = await items()
    const handle = async (token, params = {}) => (await as(token).request({ table, offset: "-1", ...params })).header("electric-handle")
    const [a, b] = [await signed(mine(table)), await signed(mine(table), { expires: "2h" })]
    const other = await signed(`table=${table}&where=owner=$1&params[1]=9&${MINE}`)
    assert.equal(await handle(a), await handle(b))
    assert.notEqual(await handle(a), await handle(other))
    assert.notEqual(await handle(a, { where: "id > 0" }), await handle(other, { where: "id > 0" }))
    // So that a backend can move from a proxy to tokens while its clients stay where they are.
    const proxied = await withSecret({ table, offset: "-1", where: "owner=$1", params: { 1: "7" }, columns: "id,title,tags,extra", queryable_columns: "id,title,tags,extra" })
    assert.equal(await handle(a), proxied.header("electric-handle"))
  })
})

test("no cache gives one token's answer to another", async () => {
  const table = await items()
  const [a, b] = [await signed(mine(table)), await signed(`table=${table}&where=owner=$1 AND id < 3&params[1]=7&${MINE}`)]
  const first = await as(a).request({ table, offset: "-1" })
  for (const answer of [first, await as(a).request({ table, offset: first.header("electric-offset"), handle: first.header("electric-handle") })]) {
    assert.equal(answer.header("cache-control"), "private, no-cache")
    assert.equal(answer.header("vary"), "authorization, cookie")
  }
  const known = { headers: { "if-none-match": first.header("etag") } }
  assert.equal((await as(a).request({ table, offset: "-1" }, known)).status, 304)
  const theirs = await as(b).request({ table, offset: "-1" }, known)
  assert.equal(theirs.status, 200)
  assert.notEqual(theirs.header("etag"), first.header("etag"))
  assert.equal(theirs.body.filter((message) => message.value).length, 2)
  assert.equal((await w.request({ table, offset: "-1" }, known)).status, 401, "without a token there is no 304 either")
})

test("other methods give nothing more", async () => {
  const table = await items()
  const me = as(await signed(mine(table)))
  const first = await me.request({ table, offset: "-1" })
  for (const params of [{ table }, { handle: first.header("electric-handle") }, { table, where: "true" }]) {
    const gone = await me.request(params, { method: "DELETE" })
    assert.equal(gone.status, 403, gone.text)
    assert.equal(gone.body.code, "scope_missing")
  }
  assert.equal((await me.request({ table, offset: "-1" })).header("electric-handle"), first.header("electric-handle"), "it is still there")
  const head = await me.request({ table, offset: "-1" }, { method: "HEAD" })
  assert.equal(head.status, 200)
  assert.equal(head.header("electric-handle"), first.header("electric-handle"))
  const preflight = await w.request({}, { method: "OPTIONS", headers: { "access-control-request-headers": "authorization" } })
  assert.equal(preflight.status, 204)
  assert.equal(preflight.header("access-control-allow-headers"), "authorization")
  for (const method of ["PUT", "PATCH"]) assert.equal((await me.request({ table, offset: "-1" }, { method })).status, 404)
})

test("every spelling of the path asks for the token", async () => {
  const table = await items()
  const token = await signed(mine(table))
  for (const path of ["/v1/shape", "/v1//shape", "/v1/%73hape", "/v1/shape/", "//v1/shape"]) {
    const got = await fetch(`${w.base}${path}?table=${table}&offset=-1`)
    assert.equal(got.status, 401, path)
    await got.arrayBuffer()
    const mine = await fetch(`${w.base}${path}?table=${table}&offset=-1`, { headers: bearer(token) })
    assert.doesNotMatch(await mine.text(), /OTHER|SECRET/, path)
    assert.equal(mine.status, 200, path)
  }
  for (const path of ["/v1/admin/shapes", "/v1/admin/shapes/explain"]) {
    // Without --tokens what operators ask is open on loopback, to who needs no token for it: it tells of shapes, not of rows.
    const got = await (await fetch(`${w.base}${path}?table=${table}`, { headers: bearer(token) })).text()
    assert.doesNotMatch(got, /OTHER|SECRET/, path)
  }
})

// ---- time

describe("when a token expires", () => {
  const soon = async (table, seconds) => signed(mine(table), { expires: `${seconds}s` })

  test("every request is refused", async () => {
    const table = await items()
    const token = await soon(table, 1)
    const first = await as(token).request({ table, offset: "-1" })
    assert.equal(first.status, 200)
    await eventually(async () => (await as(token).request({ table, offset: "-1" })).status === 401, { what: "its end" })
    const handle = first.header("electric-handle")
    for (const [params, options] of [
      [{ table, offset: "-1" }],
      [{ table, offset: "0_0", handle }],
      [{ table, offset: "0_0", handle, live: "true" }],
      [{ table, offset: "0_0", handle, live: "true", live_sse: "true" }],
      [{ table, offset: "-1", subset: { where: "id = 1" } }],
      [{ table, offset: "-1" }, { method: "HEAD" }],
      [{ table, offset: "-1" }, { method: "POST", body: "{}" }],
      [{ table, offset: "-1" }, { headers: { "if-none-match": first.header("etag") } }],
      [{ table }, { method: "DELETE" }],
    ]) {
      const got = await as(token).request(params, options)
      assert.equal(got.status, 401, JSON.stringify([params, options]))
      if (options?.method !== "HEAD") assert.equal(got.body.code, "expired_token")
      assert.equal(got.header("cache-control"), options?.method === "POST" || options?.method === "DELETE" ? "no-cache" : "no-store")
    }
  })

  test("a long-poll ends, and nothing is sent after", async () => {
    const table = await items()
    const token = await soon(table, 2)
    const shape = await read(token, { table })
    const began = Date.now()
    // The server's long-polls take 2 s: this one begins with less left.
    await sleep(700)
    const got = await as(token).request({ table, offset: shape.offset, handle: shape.handle, live: "true" })
    assert.equal(got.status, 401, got.text)
    assert.equal(got.body.code, "expired_token")
    assert.ok(Date.now() - began < 2500, `${Date.now() - began} ms`)
  })

  test("events end, whatever comes", async () => {
    const table = await items()
    const token = await soon(table, 2)
    const shape = await read(token, { table })
    const response = await fetch(w.at({ table, offset: shape.offset, handle: shape.handle, live: "true", live_sse: "true" }), { headers: bearer(token) })
    assert.equal(response.status, 200)
    assert.equal(response.headers.get("cache-control"), "private, no-cache")
    const began = Date.now()
    let writing = true
    const writer = (async () => {
      for (let n = 0; writing; n++) {
        await w.sql(`UPDATE ${table} SET title = 'mine at ' || $1 WHERE id = 1`, [String(Date.now())])
        await sleep(20)
      }
    })()
    const text = await response.text()
    const ended = Date.now()
    writing = false
    await writer
    assert.ok(ended - began < 2500, `${ended - began} ms`)
    const last = Math.max(...[...text.matchAll(/mine at (\d+)/g)].map((match) => Number(match[1])))
    assert.ok(last > began, "changes came while it was good")
    assert.doesNotMatch(text, /OTHER|SECRET/)
  })

  test("a request that waits for a shape to be made ends too", async () => {
    const table = await items()
    const token = await soon(table, 1)
    // No other session can read the table while this lock is held.
    const blocker = await w.connection()
    await blocker.query("BEGIN")
    await blocker.query(`LOCK TABLE ${table} IN ACCESS EXCLUSIVE MODE`)
    const got = await as(token).request({ table, offset: "-1", where: "id = 1" })
    await blocker.query("ROLLBACK")
    assert.equal(got.status, 401, got.text)
  })
})

// ---- where tokens come from

describe("tokens", () => {
  test("are sent in the header, and for reads in the query or a cookie", async () => {
    const table = await items()
    const token = await signed(mine(table))
    const at = (more = "") => `${w.base}/v1/shape?table=${table}&offset=-1${more}`
    const status = async (url, options) => {
      const got = await fetch(url, options)
      assert.doesNotMatch(await got.text(), /OTHER|SECRET/)
      return got.status
    }
    assert.equal(await status(at(`&access_token=${token}`)), 200)
    assert.equal(await status(at(), { headers: { cookie: `a=b; thalweg_token=${token}` } }), 200)
    assert.equal(await status(at(`&access_token=${token}`), { method: "POST", body: "{}" }), 401)
    assert.equal(await status(at(`&access_token=${token}&access_token=${token}`)), 400)
    assert.equal(await status(at(`&access_token=${token}`), { headers: bearer("tws1.x.y") }), 401, "the header counts, also if it is wrong")
  })

  test("do not open what they are not for, and changed ones open nothing", async () => {
    const table = await items()
    const token = await signed(mine(table))
    const [mark, claim, mac] = token.split(".")
    const read = JSON.parse(Buffer.from(claim, "base64url"))
    const forged = { ...read, shape: [{ table }] }
    const remade = Buffer.from(JSON.stringify(forged)).toString("base64url")
    for (const wrong of [
      `${mark}.${remade}.${mac}`,
      `${mark}.${claim}.${mac.slice(0, -1)}`,
      `${mark}.${claim}`,
      `${mark}.${claim}.`,
      `${mark}.${remade}.`,
      `${mark}.${claim}.${mac}.${mac}`,
      `tw1.${claim}.${mac}`,
      "tws1..",
      "",
      "x",
    ]) {
      const got = await as(wrong).request({ table, offset: "-1" })
      assert.equal(got.status, 401, wrong)
    }
    // A token for streams is none for tables.
    const { stdout } = await run(process.env.THALWEG_BIN, ["token", "sign", "--data", w.data, "--prefix", "*", "--scope", "admin"])
    const streams = await as(stdout.trim()).request({ table, offset: "-1" })
    assert.equal(streams.status, 403)
    assert.equal(streams.body.code, "scope_missing")
  })

  test("and the secret: what is sent as the secret counts", async () => {
    const table = await items()
    const token = await signed(mine(table))
    assert.equal((await w.request({ table, offset: "-1" })).status, 401)
    assert.equal((await withSecret({ table, offset: "-1" })).status, 200)
    const wrong = await w.request({ table, offset: "-1", secret: "wrong" }, { headers: bearer(token) })
    assert.equal(wrong.status, 401)
    // A client's header that a proxy passes on is not for this server.
    const proxied = await withSecret({ table, offset: "-1" }, { headers: bearer("eyJhbGciOi.of.somebody") })
    assert.equal(proxied.status, 200)
  })

  test("from the file, and those that are asked for with one, end with its lines", async (t) => {
    const table = await items()
    const folder = w.folder
    const file = join(folder, "tokens.toml")
    const make = async (...args) => {
      const { stdout, stderr } = await run(process.env.THALWEG_BIN, ["token", "new", ...args])
      return { lines: stdout, token: stderr.trim().split("\n").at(-1) }
    }
    const app = await make("--name", "app", "--shape", `table=${table}&where=owner < $1&params[1]=8`)
    const ops = await make("--name", "ops", "--admin", "*")
    writeFileSync(file, app.lines + ops.lines)
    const other = await World.start({ settings: { ELECTRIC_INSECURE: undefined, ELECTRIC_SECRET: SECRET }, flags: ["--tokens", file] })
    t.after(() => other.stop())
    await other.sql(`CREATE TABLE ${table} (${COLUMNS})`)
    await other.sql(`INSERT INTO ${table} SELECT n, 6 + n % 3, 1, CASE WHEN n % 3 = 2 THEN 'OTHER' ELSE 'mine' END, 'SECRET' FROM generate_series(1, 9) n`)
    const ask = (token, params, options = {}) => other.request({ table, offset: "-1", ...params }, { ...options, headers: bearer(token) })
    const issue = async (token, body) => {
      const got = await fetch(`${other.base}/v1/token`, { method: "POST", headers: bearer(token), body: JSON.stringify(body) })
      return { status: got.status, body: await got.json() }
    }
    // The file's own token reads what its line grants, and issues less.
    assert.equal((await ask(app.token)).body.filter((message) => message.value).length, 6)
    const made = await issue(app.token, { shape: [{ table, where: "owner = $1", params: ["7"], columns: ["id", "title"] }], ttl: "5min" })
    assert.equal(made.status, 200, JSON.stringify(made.body))
    assert.deepEqual(made.body.shape[0].columns, ["id", "title"])
    const issued = await ask(made.body.access_token)
    assert.equal(issued.body.filter((message) => message.value).length, 3)
    assert.doesNotMatch(issued.text, /SECRET|OTHER/)
    // It cannot hand on more.
    for (const [shape, status] of [
      [[{ table: "users" }], 403],
      [[{ table, where: "1 / (owner - 8) = 0" }], 403],
      [[{ table, where: "owner = 7) OR (true" }], 400],
      [[{ table, where: `id IN (SELECT id FROM users)` }], 403],
      [[{ table, columns: [] }], 400],
      [[{ table }, { table }], 400],
      [[{ table, where: "title = '" + "x".repeat(9000) + "'" }], 400],
    ])
      assert.equal((await issue(app.token, { shape })).status, status, JSON.stringify(shape).slice(0, 100))
    // A clause under a token that it issued itself may fail on no row either.
    await other.sql(`UPDATE ${table} SET num = '1e50' WHERE owner = 8`)
    const failing = await issue(app.token, { shape: [{ table, where: "title = 'mine' OR num > 1::real" }] })
    assert.equal(failing.status, 200, JSON.stringify(failing.body))
    assert.equal((await ask(failing.body.access_token)).body.code, "where_not_granted")
    // Parts that the signed token omits are those of the file's token.
    const wide = await issue(app.token, { shape: [{ table }] })
    const all = await ask(wide.body.access_token)
    assert.equal(all.body.filter((message) => message.value).length, 6)
    assert.doesNotMatch(all.text, /OTHER/)
    assert.equal((await issue(ops.token, { shape: [{ table }] })).status, 403, "who administers streams may not read the database")
    assert.equal((await ask(ops.token)).status, 403)
    assert.equal((await issue(made.body.access_token, { shape: [{ table }] })).status, 403, "a signed one asks for none")
    assert.equal((await issue(app.token, { prefix: "chat/", shape: [{ table }] })).status, 403)
    // Its line goes, and so do they, those that wait included at their next request.
    writeFileSync(file, ops.lines)
    for (const token of [app.token, made.body.access_token, wide.body.access_token])
      await eventually(async () => (await ask(token)).status === 401, { what: "the end of a token" })
    assert.equal((await other.request({ table, offset: "-1", secret: SECRET })).status, 200)
  })
})

// ---- the official client

for (const liveSse of [false, true])
  test(`Electric's client works with nothing but a header, and renews its token${liveSse ? ", by events" : ""}`, async (t) => {
    const table = await items()
    let [token, renewed] = [await signed(mine(table), { expires: "3s" }), 0]
    const abort = new AbortController()
    t.after(() => abort.abort())
    const stream = new ShapeStream({
      url: `${w.base}/v1/shape`,
      params: { table },
      headers: { authorization: () => `Bearer ${token}` },
      signal: abort.signal,
      liveSse,
      onError: async (error) => {
        if (!(error instanceof FetchError) || error.status !== 401) return undefined
        token = await signed(mine(table))
        renewed++
        return {}
      },
    })
    const shape = new ClientShape(stream)
    assert.deepEqual((await shape.rows).map((row) => row.id).sort(), [1, 2, 3, 4])
    await eventually(() => renewed === 1, { within: 20000, what: "the end of the first token" })
    await w.sql(`INSERT INTO ${table} VALUES (9, 7, 1, 'mine 9', 'SECRET'), (10, 8, 2, 'OTHER', 'SECRET')`)
    await eventually(() => shape.currentRows.length === 5)
    assert.doesNotMatch(JSON.stringify(shape.currentRows), /OTHER|SECRET/)
    assert.equal(renewed, 1)
  })

test("Electric's client is told once that it may not, and stops", async (t) => {
  const table = await items()
  const token = await signed(mine(table))
  const errors = []
  const abort = new AbortController()
  t.after(() => abort.abort())
  let requests = 0
  const stream = new ShapeStream({
    url: `${w.base}/v1/shape`,
    params: { table: "users" },
    headers: bearer(token),
    signal: abort.signal,
    fetchClient: (...args) => (requests++, fetch(...args)),
    onError: (error) => void errors.push(error),
  })
  stream.subscribe(() => {}, () => {})
  await eventually(() => errors.length === 1)
  assert.equal(errors[0].status, 403)
  assert.equal(errors[0].json.code, "scope_missing")
  await sleep(500)
  assert.deepEqual([errors.length, requests], [1, 1])
})
