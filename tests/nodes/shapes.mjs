// Writers on Postgres, and clients of shapes over several nodes: node shapes.mjs URL,URL,... --pg URL --until FILE --out FILE
//
// Each client follows one shape through random nodes, by long-polls or SSE, and forgives nothing: an insert of a row that is
// there, a change of one that is not, an offset that goes back, a handle that changes without a 409. What an offset names must
// be the same for every client of the same handle. At the end the rows of every client equal those of SELECT.
import { existsSync, writeFileSync } from 'node:fs'
import pg from 'pg'
import { Tags } from './tags.mjs'

const [list, ...rest] = process.argv.slice(2)
const option = (name, otherwise) => { const at = rest.indexOf('--' + name); return at < 0 ? otherwise : rest[at + 1] }
const nodes = list.split(',').map((address) => `http://${address}`)
const until = option('until'), isOver = () => existsSync(until)
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const any = () => nodes[Math.floor(Math.random() * nodes.length)]
const pick = (all) => all[Math.floor(Math.random() * all.length)]
const problems = [], refetches = []
const problem = (text) => { if (problems.length < 20) problems.push(text) }
const outages = []
let asked = 0, failed = 0, written = 0, messages = 0

const SHAPES = [
  { table: 'items' },
  { table: 'items', where: 'kind = 1' },
  { table: 'items', where: 'kind = 2', columns: 'id,kind,n' },
  { table: 'items', where: "label LIKE 'a%'", replica: 'full' },
  { table: 'others' },
]
const SUBQUERY = { table: 'items', where: 'kind IN (SELECT kind FROM kinds WHERE is_on)' }

// ---- what offsets name, for all clients

const named = new Map()
function names(handle, message, at) {
  const { headers } = message
  if (!headers.operation || headers.lsn === undefined || headers.op_position === undefined) return
  const place = `${handle}/${headers.lsn}_${headers.op_position}`
  const what = JSON.stringify([headers.operation, message.key, message.value])
  const before = named.get(place)
  if (before === undefined) named.set(place, what)
  else if (before !== what) problem(`${place} of ${at} is ${what} and was ${before}`)
}

const parts = (offset) => offset === '-1' ? [-1n, -1n] : offset.split('_').map((part) => part === 'inf' ? 1n << 62n : BigInt(part))
const isBefore = (a, b) => { const [x, y] = parts(a), [v, w] = parts(b); return x < v || x === v && y < w }

class Client {
  constructor(shape, sse) { Object.assign(this, { shape, sse, handles: [] }); this.reset() }

  reset() { Object.assign(this, { handle: undefined, offset: '-1', cursor: undefined, rows: new Map(), tags: new Tags(), isUpToDate: false }) }

  name() { return JSON.stringify(this.shape) }

  url(live) {
    const url = new URL('/v1/shape', any())
    const query = { ...this.shape, offset: this.offset, handle: this.handle }
    if (live) Object.assign(query, { live: 'true', cursor: this.cursor }, this.sse ? { live_sse: 'true' } : {})
    for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, value)
    return url
  }

  take(message) {
    messages++
    const { headers, key, value } = message
    if (headers.control === 'up-to-date') this.isUpToDate = true
    // A row that a move brings may be there already for another reason.
    const isThere = this.rows.has(key), isMove = headers.is_move_in === true
    if (!isMove) names(this.handle, message, this.name())
    if (headers.event) for (const gone of this.tags.event(headers)) this.rows.delete(gone)
    if (headers.operation === 'insert') {
      if (isThere && !isMove) problem(`${key} of ${this.name()} is inserted twice`)
      this.rows.set(key, { ...value })
      this.tags.row(key, headers, true)
    } else if (headers.operation === 'update') {
      if (!isThere) problem(`${key} of ${this.name()} is updated and not there`)
      this.rows.set(key, { ...this.rows.get(key), ...value })
      this.tags.row(key, headers, false)
    } else if (headers.operation === 'delete') {
      if (!isThere) problem(`${key} of ${this.name()} is deleted and not there`)
      this.rows.delete(key)
      this.tags.forget(key)
    }
  }

  moves(offset) {
    if (isBefore(offset, this.offset)) problem(`the offset of ${this.name()} goes from ${this.offset} to ${offset}`)
    this.offset = offset
  }

  follows(handle) {
    if (this.handle !== undefined && handle !== this.handle) problem(`the handle of ${this.name()} goes from ${this.handle} to ${handle}`)
    if (this.handle === undefined) this.handles.push(handle)
    this.handle = handle
  }

  // One request; whether it was answered.
  async step() {
    asked++
    const live = this.isUpToDate
    let answer
    try {
      answer = await fetch(this.url(live), { signal: AbortSignal.timeout(this.sse && live ? 8_000 : 20_000) })
      if (answer.status === 409) {
        const next = answer.headers.get('electric-handle')
        if (next !== null && next === this.handle) problem(`${this.name()} is sent back to the handle that it is refused with`)
        refetches.push({ shape: this.name(), handle: this.handle, next })
        await answer.text()
        this.reset()
        return true
      }
      if (answer.status !== 200) {
        if (answer.status < 500 && answer.status !== 429) problem(`${this.name()}: ${answer.status} ${(await answer.text()).slice(0, 200)}`)
        else await answer.text()
        failed++
        return false
      }
      for (const field of ['electric-handle', 'electric-offset', 'cache-control']) if (answer.headers.get(field) === null) problem(`an answer for ${this.name()} lacks ${field}`)
      if (live && this.sse) return await this.events(answer)
      const body = await answer.json()
      if (!live && answer.headers.get('electric-schema') === null) problem(`an answer for ${this.name()} lacks electric-schema`)
      this.follows(answer.headers.get('electric-handle'))
      this.isUpToDate = false
      for (const message of body) this.take(message)
      this.moves(answer.headers.get('electric-offset'))
      this.cursor = answer.headers.get('electric-cursor') ?? this.cursor
      return true
    } catch (error) {
      if (!(error instanceof TypeError || error.name === 'TimeoutError' || error.name === 'AbortError' || error.code)) problem(`${this.name()}: ${error.stack}`)
      failed++
      return false
    }
  }

  // A batch counts when its up-to-date has come; what is cut off is read again.
  async events(answer) {
    this.follows(answer.headers.get('electric-handle'))
    let rest = '', batch = []
    try {
      for await (const part of answer.body) {
        rest += Buffer.from(part).toString()
        for (let end; (end = rest.indexOf('\n\n')) >= 0; rest = rest.slice(end + 2)) {
          const data = rest.slice(0, end).split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5)).join('\n')
          if (!data) continue
          const message = JSON.parse(data)
          batch.push(message)
          if (message.headers.control === 'up-to-date') {
            for (const one of batch) this.take(one)
            const last = batch.filter((one) => one.headers.op_position !== undefined).at(-1)
            if (last) this.moves(`${last.headers.lsn}_${last.headers.op_position}`)
            batch = []
            if (isOver()) return true
          }
        }
      }
    } catch (error) {
      if (error instanceof SyntaxError) problem(`${this.name()}: ${error.message}`)
    }
    return true
  }

  async run() {
    while (!isOver()) {
      const began = Date.now()
      while (!(await this.step())) {
        if (Date.now() - began > 60_000) return problem(`${this.name()} got no answer for a minute`)
        await sleep(50)
      }
      // A long-poll lasts 2 s; how long a stream lasts says nothing.
      if (!this.sse && Date.now() - began > 2_500) outages.push(Date.now() - began)
    }
  }

  // Reads on until it has everything up to a row that was written last.
  async finish(isWhole) {
    this.sse = false
    const ends = Date.now() + 90_000
    while (Date.now() < ends) {
      if (!(await this.step())) { await sleep(100); continue }
      if (this.isUpToDate && await isWhole(this)) return
    }
  }
}

// ---- the database

const connect = async () => { const client = new pg.Client(option('pg')); client.on('error', () => {}); await client.connect(); return client }
const setup = await connect()
await setup.query(`
  CREATE TABLE items (id int PRIMARY KEY, kind int NOT NULL, n int NOT NULL, label text NOT NULL);
  CREATE TABLE others (id int PRIMARY KEY, text text NOT NULL);
  CREATE TABLE kinds (kind int PRIMARY KEY, is_on bool NOT NULL);
  INSERT INTO items SELECT i, i % 4, 0, chr(97 + i % 5) || i FROM generate_series(1, 300) i;
  INSERT INTO others SELECT i, repeat('x', 200) FROM generate_series(1, 500) i;
  INSERT INTO kinds SELECT i, i % 2 = 0 FROM generate_series(0, 3) i;`)

async function writer(number) {
  const client = await connect()
  let next = 1000 + number * 1_000_000
  while (!isOver()) {
    await client.query('BEGIN')
    for (let left = 1 + Math.floor(Math.random() * 5); left > 0; left--) {
      const id = 1 + Math.floor(Math.random() * 300), kind = Math.floor(Math.random() * 4)
      switch (Math.floor(Math.random() * 6)) {
        case 0: await client.query('INSERT INTO items VALUES ($1, $2, 0, $3)', [next++, kind, pick('abcde') + next]); break
        case 1: await client.query('DELETE FROM items WHERE id = (SELECT id FROM items WHERE id > 1000 AND id % 2 = $1 ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED)', [number % 2]); break
        case 2: await client.query('UPDATE items SET kind = $2 WHERE id = (SELECT id FROM items WHERE id = $1 FOR UPDATE SKIP LOCKED)', [id, kind]); break
        case 3: await client.query("UPDATE others SET text = md5(random()::text) WHERE id = (SELECT id FROM others WHERE id = $1 FOR UPDATE SKIP LOCKED)", [id]); break
        default: await client.query('UPDATE items SET n = n + 1 WHERE id = (SELECT id FROM items WHERE id = $1 FOR UPDATE SKIP LOCKED)', [id])
      }
      written++
    }
    if (Math.random() < 0.02) await client.query('UPDATE kinds SET is_on = NOT is_on WHERE kind = $1', [Math.floor(Math.random() * 4)])
    await client.query(Math.random() < 0.05 ? 'ROLLBACK' : 'COMMIT')
    await sleep(Math.random() * 20)
  }
  await client.end()
}

// ---- all of it

const plain = SHAPES.flatMap((shape) => [new Client(shape, false), new Client(shape, true), new Client(shape, false)])
const clients = [...plain, new Client(SUBQUERY, false)]
// Clients that come while nodes die, and read from the start.
async function newcomers() {
  while (!isOver()) {
    const client = new Client(pick(SHAPES), false)
    const began = Date.now()
    while (!client.isUpToDate && Date.now() - began < 60_000) if (!(await client.step())) await sleep(50)
    if (!client.isUpToDate) { problem(`a new client of ${client.name()} got nothing for a minute`); continue }
    const known = plain.find((one) => one.shape === client.shape)
    if (known.handle !== undefined && known.isUpToDate && client.handle.split('.')[0] !== known.handle.split('.')[0] && !refetches.length) problem(`${client.name()} has the handles ${known.handle} and ${client.handle}`)
    await sleep(200)
  }
}
// Parts of shapes, asked by POST.
async function subsets() {
  while (!isOver()) {
    try {
      const url = new URL('/v1/shape', any())
      for (const [name, value] of Object.entries({ table: 'items', log: 'changes_only', offset: '-1' })) url.searchParams.set(name, value)
      const answer = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ where: 'id <= 10', order_by: 'id', limit: 5 }), signal: AbortSignal.timeout(20_000) })
      const text = await answer.text()
      if (answer.status === 200) {
        const rows = JSON.parse(text).data.filter((message) => message.key)
        if (rows.length !== 5) problem(`a subset has ${rows.length} rows`)
        subsets.count = (subsets.count ?? 0) + 1
      } else if (answer.status < 500 && answer.status !== 409) problem(`a subset: ${answer.status} ${text.slice(0, 200)}`)
    } catch (error) { if (error instanceof SyntaxError) problem(`a subset: ${error.message}`) }
    await sleep(300)
  }
}

// All shapes exist before anything dies.
for (const client of clients) {
  const began = Date.now()
  while (!client.isUpToDate && Date.now() - began < 60_000) if (!(await client.step())) await sleep(50)
}
if (option('begun')) writeFileSync(option('begun'), '')
const running = clients.map((client) => client.run())
await Promise.all([writer(0), writer(1), writer(2), newcomers(), subsets()])
await Promise.all(running.map((one) => Promise.race([one, sleep(30_000)])))

const expected = async (shape) => {
  const columns = (shape.columns ?? '*').split(',').map((name) => name === '*' ? name : `"${name}"`).join(', ')
  const { rows } = await setup.query(`SELECT ${columns} FROM ${shape.table}${shape.where ? ` WHERE ${shape.where}` : ''}`)
  return new Map(rows.map((row) => [`"public"."${shape.table}"/"${row.id}"`, row]))
}
const text = (value) => value === null ? null : value === true ? 'true' : value === false ? 'false' : String(value)
const difference = (client, rows) => {
  for (const [key, row] of rows) {
    const own = client.rows.get(key)
    if (!own) return `${key} is missing`
    for (const [column, value] of Object.entries(row)) if (text(value) !== own[column]) return `${column} of ${key} is ${own[column]}, not ${value}`
  }
  if (client.rows.size !== rows.size) return `it has ${client.rows.size} rows of ${rows.size}`
}
const wantedOf = new Map()
for (const shape of SHAPES) wantedOf.set(shape, await expected(shape))
wantedOf.set(SUBQUERY, await expected(SUBQUERY))
// Clients that followed all the time, and one that reads the shape with sub-queries from its beginning.
await Promise.all([...clients, new Client(SUBQUERY, false)].map(async (client) => {
  const rows = wantedOf.get(client.shape)
  await client.finish((client) => difference(client, rows) === undefined)
  const found = difference(client, rows)
  if (found) problem(`${client.name()}: ${found}`)
}))

await setup.end()
outages.sort((a, b) => a - b)
const at = (part) => outages[Math.min(outages.length - 1, Math.floor(outages.length * part))] ?? 0
const moved = refetches.filter((one) => one.shape !== JSON.stringify(SUBQUERY))
const result = { written, messages, offsets: named.size, subsets: subsets.count ?? 0, asked, failed, waits: outages.length, wait_p50_ms: at(0.5), wait_p99_ms: at(0.99), refetches: moved.length, refetches_of_subqueries: refetches.length - moved.length, problems }
if (moved.length) console.log(JSON.stringify(moved.slice(0, 5)))
if (option('out')) writeFileSync(option('out'), JSON.stringify(result))
console.log(JSON.stringify(result))
