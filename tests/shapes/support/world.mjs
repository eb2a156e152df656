// One server of shapes on a database of its own. Every test file starts one (or several, with other settings) and stops it at its end.
//
// THALWEG_BIN is the binary, SHAPES_PG the address of a cluster (superuser, database postgres) that tests/pg.sh has started.

import assert from "node:assert/strict"
import { spawn } from "node:child_process"
import { copyFileSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import pg from "pg"
import { Shape } from "./shape.mjs"

export { sleep }

// Values as Postgres prints them, so that they can be compared with a shape's.
const asText = { getTypeParser: () => (value) => value }

let counter = 0
const unique = () => `${process.pid}_${Date.now().toString(36)}_${counter++}`

// Settings of most tests: no secret, DELETE allowed, small chunks, short waits.
const SETTINGS = {
  ELECTRIC_INSECURE: "true",
  ELECTRIC_ENABLE_INTEGRATION_TESTING: "true",
  ELECTRIC_SHAPE_CHUNK_BYTES_THRESHOLD: "10000",
  ELECTRIC_LONG_POLL_TIMEOUT: "2000",
}

async function connect(url) {
  const client = new pg.Client({ connectionString: url, types: asText })
  client.on("error", () => {}) // a test may restart Postgres
  await client.connect()
  return client
}

/** Waits until `probe` returns something true, and returns it. */
export async function eventually(probe, { within = 15000, what = "it" } = {}) {
  const deadline = Date.now() + within
  let last
  for (;;) {
    try {
      const answer = await probe()
      if (answer) return answer
      last = undefined
    } catch (error) {
      last = error
    }
    if (Date.now() > deadline) throw new Error(`${what} did not come true within ${within} ms${last ? `: ${last.message}` : ""}`, { cause: last })
    await sleep(20)
  }
}

/** A refusal with the parts that a client needs: the reason, and when to retry. */
export function clear(answer, code, words) {
  assert.equal(answer.status, 503, answer.text)
  assert.equal(answer.body?.code, code, answer.text)
  assert.match(answer.text, words)
  assert.ok(Number(answer.header("retry-after")) > 0, "retry-after")
  assert.equal(answer.header("cache-control"), "no-store")
}

// A file that takes too long is ended by a signal: its servers must not outlive it.
const running = new Set()
const killAll = () => running.forEach((server) => server.kill("SIGKILL"))
process.on("exit", killAll)
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"])
  process.on(signal, () => {
    killAll()
    process.exit(1)
  })

export class World {
  /**
   * `settings`: environment of the server over the usual one; undefined removes one. `serve: false`: only the database. `cluster`: the
   * address of another Postgres. `data`: the data folder, if it is to lie elsewhere. `command`: `serve` or `dev`. `flags`: more of them.
   */
  static async start({ settings = {}, serve = true, cluster = process.env.SHAPES_PG, data, command = "serve", flags = [] } = {}) {
    const world = new World()
    Object.assign(world, { command, flags })
    world.settings = { ...SETTINGS, ...settings }
    world.cluster = cluster
    assert.ok(world.cluster, "SHAPES_PG is the address of a Postgres; tests/shapes/run.sh starts one")
    world.database = `shapes_${unique()}`
    const admin = await connect(world.cluster)
    await admin.query(`CREATE DATABASE ${world.database}`)
    await admin.end()
    world.url = world.cluster.replace(/\/[^/]*$/, `/${world.database}`)
    world.db = await connect(world.url)
    world.version = Number(await world.one("SHOW server_version_num")) / 10000 | 0
    world.folder = mkdtempSync(join(tmpdir(), "thalweg-shapes-"))
    world.data = data ?? join(world.folder, "data")
    world.stops = []
    try {
      if (serve) await world.serve()
    } catch (error) {
      await world.stop()
      throw error
    }
    return world
  }

  // ---- the server's process

  /** Starts it, and waits until it serves shapes (unless `ready` is false). */
  async serve({ ready = true } = {}) {
    this.starts = (this.starts ?? 0) + 1
    const file = join(this.folder, "ready")
    rmSync(file, { force: true })
    const log = openSync(join(this.folder, "server.log"), "a")
    // Slots belong to the cluster, not to a database: several servers on one need names of their own.
    const env = { ...process.env, DATABASE_URL: this.url, ELECTRIC_REPLICATION_STREAM_ID: this.database, ...this.settings }
    for (const key of Object.keys(env)) if (env[key] === undefined) delete env[key]
    const args = [this.command, "--listen", "127.0.0.1:0", "--data", this.data, "--ready-file", file, ...this.flags]
    // `wrap`: a command that puts itself in the place of the server, with limits.
    const [program, ...rest] = [...(this.wrap ?? []), process.env.THALWEG_BIN, ...args]
    this.process = spawn(program, rest, { env, stdio: ["ignore", log, log] })
    const server = this.process
    running.add(server)
    this.ended = new Promise((resolve) => server.once("exit", (code, signal) => resolve(running.delete(server) && (code ?? signal))))
    let exit
    this.ended.then((code) => (exit = code))
    const address = await eventually(
      () => {
        if (exit !== undefined) return { exit }
        try {
          return readFileSync(file, "utf8").trim()
        } catch {
          return undefined
        }
      },
      { within: 30000, what: "the server's start" },
    )
    if (address.exit !== undefined) throw Object.assign(new Error(`the server ended with ${address.exit}: ${this.log().slice(-800)}`), { exit: address.exit })
    this.base = `http://${address}`
    if (ready) await eventually(async () => (await fetch(`${this.base}/v1/health`)).status === 200, { within: 30000, what: "health" })
    return this
  }

  log() {
    return readFileSync(join(this.folder, "server.log"), "utf8")
  }

  /** A line of the server's /proc/PID/status in bytes; VmHWM is the most memory that it had, since it began or since `forgetPeak`. */
  memory(name = "VmHWM") {
    return Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(readFileSync(`/proc/${this.process.pid}/status`, "utf8"))[1]) * 1024
  }

  forgetPeak() {
    writeFileSync(`/proc/${this.process.pid}/clear_refs`, "5")
  }

  async metric(name) {
    const page = await (await fetch(`${this.base}/metrics`)).text()
    return Number(new RegExp(`^thalweg_${name} (.+)$`, "m").exec(page)?.[1])
  }

  async kill(signal = "SIGKILL") {
    if (!this.process) return undefined
    const began = Date.now()
    this.process.kill(signal)
    const code = await this.ended
    this.process = undefined
    return { code, took: Date.now() - began }
  }

  async restart(signal = "SIGKILL") {
    const ended = await this.kill(signal)
    await this.serve()
    return ended
  }

  async stop() {
    for (const stop of this.stops.reverse()) await stop()
    await this.kill()
    const log = join(this.folder, "server.log")
    // A test may end before it has started a server.
    if (process.env.SHAPES_LOGS && existsSync(log)) copyFileSync(log, join(process.env.SHAPES_LOGS, `${this.database}.log`))
    await this.db.end().catch(() => {})
    const admin = await connect(this.cluster)
    try {
      // A slot that its walsender still holds cannot be dropped, nor can a database with a slot.
      await eventually(
        async () => {
          await admin.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = $1 AND active", [this.database])
          await admin.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1 AND NOT active", [this.database])
          await admin.query(`DROP DATABASE IF EXISTS ${this.database} WITH (FORCE)`)
          return true
        },
        { what: "dropping the database" },
      )
    } finally {
      await admin.end()
      rmSync(this.folder, { recursive: true, force: true })
    }
  }

  // ---- SQL

  async sql(text, params) {
    return (await this.db.query(text, params)).rows
  }

  /** The first column of the first row, as text. */
  async one(text, params) {
    const rows = await this.sql(text, params)
    return rows.length ? Object.values(rows[0])[0] : undefined
  }

  /** After Postgres was away. */
  async reconnect() {
    await this.db.end().catch(() => {})
    this.db = await connect(this.url)
  }

  /** Another connection, closed at the end. */
  async connection() {
    const client = await connect(this.url)
    this.stops.push(() => client.end().catch(() => {}))
    return client
  }

  /** Creates a table of a new name with these columns; rows are SQL tuples. Returns the name. */
  async table(columns, ...rows) {
    const name = `t_${unique()}`
    await this.sql(`CREATE TABLE ${name} (${columns})`)
    if (rows.length) await this.sql(`INSERT INTO ${name} VALUES ${rows.join(", ")}`)
    return name
  }

  name(prefix = "t") {
    return `${prefix}_${unique()}`
  }

  // ---- HTTP

  /** URL of /v1/shape with these parameters; `params: {1: 'x'}` and `subset: {where: ..}` are spelled out. */
  at(params = {}, path = "/v1/shape") {
    const url = new URL(this.base + path)
    for (const [key, value] of Object.entries(params)) {
      if (value === undefined) continue
      if (key === "params" && typeof value === "object") for (const [n, v] of Object.entries(value)) url.searchParams.set(`params[${n}]`, v)
      else if (key === "subset") for (const [n, v] of Object.entries(value)) url.searchParams.set(`subset__${n}`, typeof v === "object" ? JSON.stringify(v) : v)
      else if (value === true) url.searchParams.set(key, "true")
      else url.searchParams.set(key, value)
    }
    return url
  }

  /** One request; the answer with its body read: {status, headers, text, body}. */
  async request(params, { method = "GET", path, headers, body, signal } = {}) {
    const response = await fetch(this.at(params, path), { method, headers, body, signal })
    const text = await response.text()
    let json
    try {
      json = JSON.parse(text)
    } catch {
      json = undefined
    }
    return { status: response.status, headers: response.headers, header: (name) => response.headers.get(name), text, body: json }
  }

  /** A request that must be refused as invalid, with exactly these errors. */
  async refuses(params, errors, options) {
    const answer = await this.request(params, options)
    assert.equal(answer.status, 400, `${JSON.stringify(params)} gives ${answer.text}`)
    assert.deepEqual(answer.body, { message: "Invalid request", errors })
    assert.equal(answer.header("cache-control"), "no-store")
    return answer
  }

  shape(params) {
    return new Shape(this, params)
  }

  /** A shape from its beginning to its present end. */
  async synced(params) {
    return await this.shape(params).sync()
  }

  /**
   * The shape must equal its SELECT: both are read again until they agree.
   * `where` is the condition for Postgres, if it differs.
   */
  async agrees(shape, { where = shape.params.where, columns = "*", within = 10000 } = {}) {
    const query = `SELECT ${columns} FROM ${shape.params.table}${where ? ` WHERE ${where}` : ""}`
    const params = shape.params.params ? Object.keys(shape.params.params).sort((a, b) => a - b).map((n) => shape.params.params[n]) : []
    const sorted = (rows) => rows.map((row) => JSON.stringify(normal(row))).sort()
    const deadline = Date.now() + within
    for (;;) {
      const wanted = sorted(await this.sql(query, params))
      const got = sorted([...shape.rows.values()])
      if (JSON.stringify(wanted) === JSON.stringify(got)) return
      if (Date.now() > deadline) assert.deepEqual(got, wanted, `the shape is not what ${query} says`)
      await shape.live({ within: 1000 })
    }
  }
}

// Columns in one order; booleans are true/false in snapshots and t/f in the log.
function normal(row) {
  const out = {}
  for (const key of Object.keys(row).sort()) out[key] = row[key] === "true" ? "t" : row[key] === "false" ? "f" : row[key]
  return out
}
