// Loads that fill the server's disk or memory: a full disk, huge transactions, clients that do not read, and very many at once.
//
// Memory is judged by VmHWM, the most that the process had. FAULTS_MB is the size of the huge transactions (200; `make soak` takes 2048),
// FAULTS_CLIENTS how many clients arrive at once (10000). LOADGEN is the load generator: node has no room for so many sockets.

import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { readdirSync, readlinkSync } from "node:fs"
import { connect as dial } from "node:net"
import { join } from "node:path"
import { after, afterEach, before, describe, test } from "node:test"
import { promisify } from "node:util"
import { Disk } from "./support/disk.mjs"
import { ownCluster, w, world } from "./support/own.mjs"
import { clear, eventually, sleep } from "./support/world.mjs"

const MIB = 1 << 20
const HUGE_MB = Number(process.env.FAULTS_MB ?? 200)
const CLIENTS = Number(process.env.FAULTS_CLIENTS ?? 10000)

ownCluster({ max_wal_size: `${Math.max(512, 2 * HUGE_MB)}MB`, autovacuum: "off" })
const mb = (bytes) => Math.round(bytes / MIB)

describe("the disk is full", () => {
  const SMALL = {
    THALWEG_JOURNAL_SEGMENT_BYTES: "1MiB",
    THALWEG_JOURNAL_BOUND_BYTES: "16MiB",
    THALWEG_SETTLE_BYTES: "1MiB",
    THALWEG_SETTLE_AFTER: "500ms",
    THALWEG_PURGE_AFTER: "2s",
    THALWEG_RESERVE_BYTES: "4MiB",
  }
  const insert = (table, from, count, bytes = 1000) => w.sql(`INSERT INTO ${table} SELECT n, repeat('x', ${bytes}) FROM generate_series(${from}, ${from + count - 1}) n`)
  const slot = () => w.one("SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE database = $1", [w.database])
  const health = () => w.request({}, { path: "/health" })
  let disk
  before(() => (disk = Disk.mount(96)))
  afterEach(() => disk?.empty())
  after(() => disk?.unmount())

  test("changes wait at Postgres, rows are read, new shapes are refused; with space all goes on by itself", async (t) => {
    if (!disk) return t.skip("needs root, to mount a small disk")
    await world({ settings: SMALL, data: join(disk.path, "one") })
    const [table, cut] = [await w.table("id int PRIMARY KEY, t text"), await w.table("id int PRIMARY KEY", "(1)")]
    await insert(table, 1, 1000)
    const [shape, truncated] = [await w.synced({ table }), await w.synced({ table: cut })]
    const unloved = await w.synced({ table, where: "id < 3" })
    let next = 1001
    // Full for good: settling may free another segment, which is filled too.
    const full = async () => {
      for (let stuck = 0; stuck < 5; ) {
        disk.fill()
        if ((await w.metric("shape_stuck")) === 1) {
          stuck += 1
          await sleep(200)
        } else {
          assert.ok(next < 60000, "the disk is full at last")
          stuck = 0
          await insert(table, next, 1000)
          next += 1000
        }
      }
    }
    await full()
    await w.sql(`TRUNCATE ${cut}; INSERT INTO ${cut} VALUES (7)`)

    const told = await health()
    assert.equal(told.status, 503)
    assert.match(told.text, /disk is full/)
    assert.equal((await w.request({}, { path: "/v1/admin/shapes" })).body.source.stuck, true)
    assert.match(w.log(), /changes of Postgres cannot be stored.*no space/)
    // More than the journal's last segment may have room for.
    const more = { table, offset: "-1", where: "id <= 1000 AND id <> 10" }
    clear(await w.request(more), "disk_full", /the disk has no space/)
    const drop = { path: `/v1/admin/shapes/${unloved.handle}`, method: "DELETE" }
    assert.equal((await w.request({}, drop)).status, 204, "a shape can be dropped, to make room")
    const reader = await w.synced({ table })
    assert.ok(reader.rows.size >= 1000, `${reader.rows.size} rows are read`)
    assert.equal((await w.request({ table, handle: reader.handle, offset: reader.offset, live: "true" })).status, 200)
    const kept = await slot()
    await insert(table, next, 1000)
    await sleep(1000)
    assert.equal(await slot(), kept, "Postgres keeps its log")
    await eventually(async () => (await w.metric("shape_wal_kept_bytes")) > 100_000, { what: "a metric of what Postgres keeps" })
    const lines = w.log().match(/cannot be stored/g).length
    assert.ok(lines <= 2, `it is said ${lines} times`)

    // Dead on a full disk, and back on it.
    await w.kill()
    await w.serve({ ready: false })
    await eventually(async () => (await w.metric("shape_stuck")) === 1, { within: 30000, what: "stuck again" })
    await full()
    assert.equal((await health()).status, 503)
    assert.equal((await w.request({}, drop)).status, 404, "it does not come back")
    for (const one of [shape, reader]) {
      one.upToDate = false
      const told = await w.request({ table, handle: one.handle, offset: one.offset })
      // A client that has seen changes before they were durable waits for them.
      assert.ok(told.status === 200 || (told.status === 503 && told.text.includes("on their way")), `${told.status} ${told.text}`)
    }
    clear(await w.request(more), "disk_full", /the disk has no space/)

    disk.empty()
    await eventually(async () => (await w.metric("shape_stuck")) === 0, { within: 30000, what: "space that is found" })
    for (const one of [shape, reader]) await w.agrees(one, { within: 30000 })
    assert.deepEqual([shape.refetches, reader.refetches], [0, 0])
    truncated.upToDate = false
    await w.agrees(truncated)
    assert.deepEqual(truncated.column("id"), ["7"])
    await eventually(async () => (await health()).status === 200, { within: 30000, what: "a good health" })
    await eventually(async () => (await slot()) !== kept, { what: "a slot that moves on" })
    assert.equal((await w.synced({ table, where: "id < 10" })).rows.size, 9)
    assert.match(w.log(), /changes of Postgres are stored again/)
  })

  test("a large transaction that does not fit waits at Postgres as a whole", async (t) => {
    if (!disk) return t.skip("needs root, to mount a small disk")
    await world({ settings: SMALL, data: join(disk.path, "two") })
    const table = await w.table("id int PRIMARY KEY, t text")
    const shape = await w.synced({ table })
    disk.fill()
    await insert(table, 1, 20000)
    await eventually(() => /a large transaction cannot be kept on the disk: No space left on device/.test(w.log()), { what: "the reason in the log" })
    await shape.live()
    assert.equal(shape.rows.size, 0)
    disk.empty()
    // It is tried again after a pause, which has grown.
    await w.agrees(shape, { within: 40000 })
    assert.equal(shape.refetches, 0)
  })
})

describe("a huge transaction", () => {
  const BYTES = 1000
  const ROWS = Math.round((HUGE_MB * MIB) / (BYTES + 40))
  // The server's memory independent of the size: its caches of fixed size are set small, so that a growth with the transaction shows.
  const PEAK = 400 * MIB
  const SETTINGS = { ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD: undefined, THALWEG_WINDOW_BYTES: "8MiB", THALWEG_SETTLE_BYTES: "8MiB", THALWEG_CHUNK_CACHE_BYTES: "0" }
  const insert = (client, table, from, count) => client.query(`INSERT INTO ${table} SELECT n, repeat('x', ${BYTES}) FROM generate_series(${from}, ${from + count - 1}) n`)

  /** Files of transactions under way: they have no name, and are gone with their descriptor. */
  const spilled = () => {
    const folder = `/proc/${w.process.pid}/fd`
    return readdirSync(folder).filter((fd) => {
      try {
        return /\/spill\//.test(readlinkSync(join(folder, fd)))
      } catch {
        return false
      }
    }).length
  }

  /** A client that only counts: a Shape would keep too much. */
  class Counter {
    constructor(params) {
      Object.assign(this, { params, offset: "-1", handle: undefined, rows: 0, sum: 0, upToDate: false })
    }

    async step(live) {
      const answer = await fetch(w.at({ ...this.params, offset: this.offset, handle: this.handle, live, cursor: live && this.cursor }))
      assert.equal(answer.status, 200)
      for (const { headers, value } of await answer.json()) {
        if (headers.operation === undefined) continue
        assert.equal(headers.operation, "insert")
        this.rows += 1
        this.sum += Number(value.id)
      }
      this.offset = answer.headers.get("electric-offset")
      this.handle = answer.headers.get("electric-handle")
      this.cursor = answer.headers.get("electric-cursor") ?? undefined
      this.upToDate = answer.headers.has("electric-up-to-date")
    }

    /** Reads on until it has this many rows, and they are the right ones. */
    async until(rows, within = 60000 + HUGE_MB * 200) {
      const deadline = Date.now() + within
      while (this.rows < rows || !this.upToDate) {
        assert.ok(Date.now() < deadline, `${this.rows} of ${rows} rows`)
        await this.step(this.upToDate ? "true" : undefined)
      }
      assert.equal(this.rows, rows)
      const sum = await w.one(`SELECT sum(id) FROM ${this.params.table}`)
      assert.equal(`${this.sum}`, sum)
    }
  }

  test(`of ${HUGE_MB} MB arrives whole, and one that is undone leaves nothing; memory stays what it was`, async (t) => {
    await world({ settings: SETTINGS })
    const table = await w.table("id int PRIMARY KEY, t text")
    const [client, writer] = [new Counter({ table }), await w.connection()]
    while (!client.upToDate) await client.step()
    w.forgetPeak()

    const began = Date.now()
    await writer.query("BEGIN")
    await insert(writer, table, 1, ROWS / 2)
    await writer.query("SAVEPOINT part")
    await insert(writer, table, 10 * ROWS, 2000)
    await writer.query("ROLLBACK TO part")
    await insert(writer, table, ROWS / 2 + 1, ROWS - Math.floor(ROWS / 2))
    await eventually(() => spilled() === 1, { what: "a transaction that waits on the disk" })
    await client.step()
    assert.equal(client.rows, 0, "nothing is told before the commit")
    await writer.query("COMMIT")
    const committed = Date.now()
    await client.until(ROWS)
    const [read, peak] = [Date.now(), w.memory()]
    t.diagnostic(`${ROWS} rows in ${committed - began} ms until the commit, ${read - committed} ms until a client had all (${Math.round((ROWS / (read - committed)) * 1000)} rows/s); peak ${mb(peak)} MB`)
    assert.ok(peak < PEAK, `${mb(peak)} MB of memory for ${HUGE_MB} MB`)
    assert.equal(spilled(), 0, "the file is gone")
    const second = new Counter({ table })
    await second.until(ROWS)

    await writer.query("BEGIN")
    await insert(writer, table, 20 * ROWS, ROWS)
    await eventually(() => spilled() === 1, { what: "another one on the disk" })
    await writer.query("ROLLBACK")
    await eventually(() => spilled() === 0, { within: 30000, what: "a file that goes with its transaction" })
    await w.sql(`INSERT INTO ${table} VALUES (0, 'after')`)
    await client.until(ROWS + 1)
    assert.ok(w.memory() < PEAK, `${mb(w.memory())} MB of memory`)
  })

  test("survives kill -9 before its commit, and while it is applied", async () => {
    await world({ settings: SETTINGS })
    const table = await w.table("id int PRIMARY KEY, t text")
    const [client, writer] = [new Counter({ table }), await w.connection()]
    while (!client.upToDate) await client.step()
    await writer.query("BEGIN")
    await insert(writer, table, 1, ROWS)
    await eventually(() => spilled() === 1, { what: "a transaction that waits on the disk" })
    await w.restart()
    await eventually(() => spilled() === 1, { within: 60000, what: "the same one, sent again" })
    await writer.query("COMMIT")
    // Its bodies go to the change log piece by piece.
    await eventually(async () => (await w.metric("shape_log_held_bytes")) > (HUGE_MB * MIB) / 10, { within: 60000, what: "a transaction that is half applied" })
    await w.restart()
    client.upToDate = false
    await client.until(ROWS)
    const late = new Counter({ table })
    await late.until(ROWS)
  })

  test("of rows larger than a frame of the journal, and one in more pieces than a frame has room for", async () => {
    await world({ settings: { ...SETTINGS, ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD: "10000", THALWEG_JOURNAL_SEGMENT_BYTES: "1MiB", THALWEG_JOURNAL_BOUND_BYTES: "64MiB" } })
    const table = await w.table("id int PRIMARY KEY, n int, t text")
    const [shape, ...others] = [await w.synced({ table }), await w.synced({ table, where: "n = 0" }), await w.synced({ table, where: "n = 1" })]
    await w.sql(`INSERT INTO ${table} VALUES (1, 0, 'a'), (2, 1, repeat('b', 3000000)), (3, 0, repeat('c', 1200000)), (4, 1, 'd')`)
    for (const one of [shape, ...others]) await w.agrees(one)
    await w.restart()
    shape.upToDate = false
    await w.agrees(shape)
    assert.equal(shape.refetches, 0)
    // Every row begins another range: the list of them is longer than a frame, and the shapes are made again.
    await w.sql(`DELETE FROM ${table} WHERE id < 4; INSERT INTO ${table} SELECT i, i % 2, 'x' FROM generate_series(10, 200009) i`)
    await eventually(() => /shapes are dropped: one transaction has too many changes/.test(w.log()), { within: 60000, what: "the reason in the log" })
    const count = async (one) => {
      one.upToDate = false
      for (const end = Date.now() + 60000; one.rows.size < 100000 && Date.now() < end; ) await one.step()
      return one.rows.size
    }
    assert.ok((await count(others[0])) === 100000 && others[0].refetches === 1)
    await w.sql(`INSERT INTO ${table} VALUES (5, 0, 'later')`)
    await others[0].until((one) => one.rows.size === 100001)
  })

  test("that is told to many shapes in turn is no larger", async (t) => {
    await world({ settings: SETTINGS })
    const table = await w.table("id int PRIMARY KEY, n int, t text")
    const shapes = Array.from({ length: 100 }, (_, n) => new Counter({ table, where: `n = ${n}` }))
    for (const shape of shapes) while (!shape.upToDate) await shape.step()
    w.forgetPeak()
    const rows = Math.floor(Math.min(ROWS, 400_000) / 100) * 100
    await w.sql(`INSERT INTO ${table} SELECT i, i % 100, repeat('x', 100) FROM generate_series(1, ${rows}) i`)
    for (const shape of shapes) {
      for (const end = Date.now() + 60000; shape.rows < rows / 100 && Date.now() < end; ) await shape.step(shape.upToDate ? "true" : undefined)
      assert.equal(shape.rows, rows / 100, shape.params.where)
    }
    t.diagnostic(`${rows} rows, each to another shape than the one before; peak ${mb(w.memory())} MB`)
    // A range of bodies, in memory, for every single row.
    assert.ok(w.memory() < PEAK + rows * 200, `${mb(w.memory())} MB of memory`)
  })
})

describe("clients that do not read", () => {
  const stalled = []
  /** A request with its answer left in the socket. */
  const stall = (params) =>
    new Promise((resolve, reject) => {
      const url = w.at(params)
      const socket = dial(url.port, url.hostname, () => {
        socket.write(`GET ${url.pathname}${url.search} HTTP/1.1\r\nhost: ${url.host}\r\n\r\n`)
        socket.pause()
        resolve(socket)
      })
      socket.on("error", reject)
      stalled.push(socket)
    })
  afterEach(() => stalled.splice(0).forEach((socket) => socket.destroy()))
  // Far more than a socket takes in one answer, so that the rest stays with the server.
  const CHUNK = 16 * MIB
  const SETTINGS = {
    ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD: `${CHUNK}`,
    THALWEG_MAX_UNSENT: "64MiB",
    THALWEG_WRITE_TIMEOUT: "4s",
    THALWEG_WINDOW_BYTES: "8MiB",
    THALWEG_SETTLE_BYTES: "8MiB",
    THALWEG_CHUNK_CACHE_BYTES: "1MiB",
    THALWEG_SHAPE_COMPACT_BYTES: "1GiB",
  }
  // Beside unsent answers: the process's own memory, and reads that began before the limit was reached, one for each thread that reads.
  const PEAK = 64 * MIB + 5 * CHUNK + 256 * MIB

  test("hold no more than they may: others are served, then told to wait, and the silent ones are cut", async (t) => {
    await world({ settings: SETTINGS })
    const table = await w.table("id int PRIMARY KEY, t text")
    const small = await w.table("id int PRIMARY KEY", "(1)")
    await w.sql(`INSERT INTO ${table} SELECT n, repeat('x', 2000) FROM generate_series(1, 16000) n`)
    const [shape, other] = [w.shape({ table }), await w.synced({ table: small })]
    await shape.sync()
    for (let n = 1; n <= 6; n++) await w.sql(`INSERT INTO ${table} SELECT n, repeat('x', 2000) FROM generate_series(${n} * 16000 + 1, ${n} * 16000 + 16000) n`)
    // Chunk by chunk: each is another buffer. Rows are read while they are sent, and need less.
    const chunks = ["-1"]
    while (shape.rows.size < 112000) {
      chunks.push(shape.offset)
      await shape.step()
    }
    assert.ok(chunks.length >= 7, `${chunks}`)
    w.forgetPeak()
    for (let n = 0; n < 150; n++) await stall({ table, offset: chunks[n % chunks.length], handle: n % chunks.length ? shape.handle : undefined })
    const refused = await eventually(async () => {
      const answer = await w.request({ table, offset: chunks[1], handle: shape.handle })
      return answer.status === 503 && answer
    }, { what: "an end of what may be held" })
    clear(refused, "unsent_full", /too much memory/)
    assert.ok((await w.metric("shape_read_held_bytes")) >= 64 * MIB)
    await w.sql(`INSERT INTO ${small} VALUES (2)`)
    await w.agrees(other)
    assert.ok(w.memory() < PEAK, `${mb(w.memory())} MB of memory`)
    t.diagnostic(`150 clients leave ${mb(CHUNK)} MB each unread: peak ${mb(w.memory())} MB, of which ${mb(64 * MIB)} MB may wait`)
    const late = w.shape({ table })
    await eventually(async () => (await w.request({ table, offset: chunks[1], handle: shape.handle })).status === 200, { within: 20000, what: "memory that is given back when they are cut" })
    await late.sync()
    assert.equal(late.rows.size, 112000)
  })

  test("of events, when more happens than they take", async (t) => {
    await world({ settings: SETTINGS })
    const table = await w.table("id int PRIMARY KEY, t text")
    const shape = await w.synced({ table })
    for (let n = 0; n < 150; n++) await stall({ table, offset: shape.offset, handle: shape.handle, live: "true", live_sse: "true" })
    await eventually(async () => (await w.metric("shape_live_clients")) >= 150, { what: "150 readers of events" })
    w.forgetPeak()
    for (let n = 0; n < 8; n++) await w.sql(`INSERT INTO ${table} SELECT n, repeat('x', 2000) FROM generate_series(${n * 5000 + 1}, ${n * 5000 + 5000}) n`)
    const deadline = Date.now() + 30000
    // Readers get a 503 with Retry-After, and come to the end.
    while (shape.rows.size < 40000 && Date.now() < deadline) {
      const answer = await w.request({ table, offset: shape.offset, handle: shape.handle })
      if (answer.status === 503) {
        clear(answer, "unsent_full", /too much memory/)
        await sleep(1000 * Number(answer.header("retry-after")))
      } else shape.take(answer, false)
    }
    assert.equal(shape.rows.size, 40000)
    assert.ok(w.memory() < PEAK, `${mb(w.memory())} MB of memory`)
    t.diagnostic(`80 MB of events for 150 who take none: peak ${mb(w.memory())} MB`)
    await eventually(async () => (await w.metric("shape_live_clients")) === 0, { within: 20000, what: "an end of the silent ones" })
    await w.agrees(shape)
  })
})

describe(`${CLIENTS} at once`, () => {
  const run = promisify(execFile)
  /** The load generator against the server; its last line as an object. */
  async function load(...args) {
    const all = ["--server", new URL(w.base).host, "--server-pid", w.process.pid, "--connections", CLIENTS, "--threads", 2, "shapes", ...args]
    const { stdout, stderr } = await run(process.env.LOADGEN, all.map(String), { maxBuffer: MIB }).catch((error) => error)
    const line = stdout?.trim().split("\n").at(-1) ?? ""
    const told = Object.fromEntries(line.split(" ").filter((word) => word.includes("=")).map((word) => word.split("=")))
    for (const key of Object.keys(told)) told[key] = Number(told[key])
    return { ...told, line, stderr }
  }
  const SETTINGS = { ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD: undefined, ELECTRIC_LONG_POLL_TIMEOUT: "20000", THALWEG_MAX_CONNECTIONS: `${CLIENTS + 100}` }
  const items = () =>
    w.sql("CREATE TABLE items (id serial PRIMARY KEY, name text, note text); INSERT INTO items (name, note) SELECT 'n-' || i % 500, repeat('x', 64) FROM generate_series(1, 500) i")

  test("of one new shape: all get its rows, and then the next changes", async (t) => {
    await world({ settings: SETTINGS })
    await items()
    w.forgetPeak()
    const told = await load("follow", "--retry", "--pg", w.url, "--sql", "INSERT INTO items (name) VALUES ('new')", "--warm", 0, "--transactions", 3, "--pause", 500)
    t.diagnostic(`${told.line}; peak ${mb(w.memory())} MB`)
    assert.deepEqual([told.clients, told.refused, told.rotated, told.missing], [CLIENTS, 0, 0, 0], told.stderr)
    assert.ok(w.memory() < 120 * MIB + CLIENTS * 16 * 1024, `${mb(w.memory())} MB of memory`)
    assert.equal(await w.metric("shapes"), 1)
  })

  test("of one shape, more than may be: who is refused comes again, and gets all", async (t) => {
    await world({ settings: { ...SETTINGS, ELECTRIC_MAX_CONCURRENT_REQUESTS: `{"initial": 100, "existing": ${Math.ceil(CLIENTS / 10)}}` } })
    await items()
    const told = await load("fetch", "--retry", "--clients", CLIENTS, "--rows", 500)
    t.diagnostic(told.line)
    assert.deepEqual([told.ops, told.refused, told.wrong], [CLIENTS, 0, 0], told.stderr)
  })

  test("each of a shape of its own: made a few at a time, by a few connections, or refused until there is room", async (t) => {
    await world({ settings: { ...SETTINGS, ELECTRIC_DB_POOL_SIZE: "5", ELECTRIC_MAX_CONCURRENT_REQUESTS: `{"initial": ${Math.ceil(CLIENTS / 4)}, "existing": ${CLIENTS}}` } })
    await items()
    w.forgetPeak()
    let connections = 0
    const watching = setInterval(async () => {
      const now = await w.one("SELECT count(*) FROM pg_stat_activity WHERE datname = $1", [w.database]).catch(() => 0)
      connections = Math.max(connections, Number(now))
    }, 200)
    const told = await load("fetch", "--retry", "--where", "name = 'n-{i}'", "--shapes", CLIENTS).finally(() => clearInterval(watching))
    t.diagnostic(`${told.line}; peak ${mb(w.memory())} MB, ${connections} connections to Postgres`)
    assert.deepEqual([told.ops, told.refused, told.wrong], [CLIENTS, 0, 0], told.stderr)
    assert.ok(told.retried > 0, "some had to wait")
    assert.ok(connections <= 5 + 3 + 2, `${connections} connections to Postgres`)
    assert.equal(await w.metric("shapes"), CLIENTS)
    assert.ok(w.memory() < 120 * MIB + CLIENTS * 24 * 1024, `${mb(w.memory())} MB of memory`)
  })
})
