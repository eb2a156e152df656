// A Postgres of one's own, to be stopped, killed, replaced and promoted. SHAPES_PG_BIN is the folder of its programs.

import assert from "node:assert/strict"
import { execFile, execFileSync } from "node:child_process"
import { appendFileSync, chownSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import pg from "pg"

const run = promisify(execFile)

// Postgres refuses to run as root.
const USER = process.env.PG_USER ?? "nobody"
const id = (flag) => Number(execFileSync("id", [flag, USER], { encoding: "utf8" }))
const owner = process.getuid() === 0 ? { uid: id("-u"), gid: id("-g") } : {}

const SETTINGS = {
  listen_addresses: "127.0.0.1",
  wal_level: "logical",
  max_wal_senders: 20,
  max_replication_slots: 20,
  max_connections: 200,
  // The machine does not crash in tests.
  fsync: "off",
  // The smallest possible value: larger transactions are streamed while they run, and wait on the server's disk.
  logical_decoding_work_mem: "64kB",
  log_min_messages: "warning",
}

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })

export class Cluster {
  static async start(settings = {}) {
    assert.ok(process.env.SHAPES_PG_BIN, "SHAPES_PG_BIN is a folder of Postgres's programs; tests/shapes/run.sh says which")
    const cluster = new Cluster()
    cluster.folder = mkdtempSync(join(tmpdir(), "thalweg-cluster-"))
    if (owner.uid) chownSync(cluster.folder, owner.uid, owner.gid)
    cluster.data = join(cluster.folder, "data")
    cluster.port = await freePort()
    cluster.settings = { ...SETTINGS, unix_socket_directories: cluster.folder, ...settings }
    cluster.url = `postgres://postgres@127.0.0.1:${cluster.port}/postgres`
    await cluster.make()
    await cluster.again()
    return cluster
  }

  program(name, ...args) {
    return run(join(process.env.SHAPES_PG_BIN, name), args, { ...owner, cwd: this.folder })
  }

  /** A new database system, in place of the one that may be there. */
  async make() {
    rmSync(this.data, { recursive: true, force: true })
    await this.program("initdb", "-D", this.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
    const lines = Object.entries(this.settings).map(([key, value]) => `${key} = '${value}'\n`)
    appendFileSync(join(this.data, "postgresql.conf"), lines.join(""))
  }

  async again() {
    const log = join(this.folder, "server.log")
    await this.program("pg_ctl", "start", "-w", "-t", "60", "-s", "-D", this.data, "-l", log, "-o", `-p ${this.port}`).catch((error) => {
      throw new Error(`Postgres does not start: ${readFileSync(log, "utf8").slice(-500)}`, { cause: error })
    })
  }

  /** The method by which this role must authenticate; all others are trusted. */
  async only(role, method) {
    const file = join(this.data, "pg_hba.conf")
    writeFileSync(file, `host all ${role} 127.0.0.1/32 ${method}\n${readFileSync(file, "utf8")}`)
    await this.sql("SELECT pg_reload_conf()")
  }

  /** `mode`: fast, or immediate, which is a crash. */
  async stop(mode = "fast") {
    await this.program("pg_ctl", "stop", "-w", "-t", "60", "-s", "-D", this.data, "-m", mode)
  }

  /** A failover as followers see it: the same system continues, on another timeline. */
  async failover() {
    await this.stop()
    writeFileSync(join(this.data, "standby.signal"), "")
    if (owner.uid) chownSync(join(this.data, "standby.signal"), owner.uid, owner.gid)
    await this.again()
    await this.program("pg_ctl", "promote", "-w", "-t", "60", "-s", "-D", this.data)
  }

  // ---- TLS

  /** An authority of a name: the file of its certificate. */
  async authority(name) {
    const [key, cert] = [join(this.folder, `${name}.key`), join(this.folder, `${name}.pem`)]
    await this.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
      "-subj", `/CN=${name}`, "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    return cert
  }

  /** From now on Postgres has a certificate for `host`, which the authority has signed. */
  async speakTls(authority, host) {
    const [key, request, cert, extensions] = ["key", "csr", "crt", "ext"].map((end) => join(this.folder, `server.${end}`))
    await this.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", request, "-subj", `/CN=${host}`)
    writeFileSync(extensions, `subjectAltName=DNS:${host}\n`)
    await this.openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey", authority.replace(/pem$/, "key"), "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", cert)
    for (const [setting, value] of [["ssl_cert_file", cert], ["ssl_key_file", key], ["ssl", "on"]]) await this.sql(`ALTER SYSTEM SET ${setting} = '${value}'`)
    await this.stop()
    await this.again()
  }

  openssl(...args) {
    return run("openssl", args, { ...owner, cwd: this.folder })
  }

  // ---- storage that is set back

  /** Keeps the files as they are now, for `setBack`. */
  async keep() {
    await this.stop()
    rmSync(join(this.folder, "kept"), { recursive: true, force: true })
    await run("cp", ["-a", this.data, join(this.folder, "kept")])
    await this.again()
  }

  /** The files are again what they were when they were kept: the same system, on the same timeline, at an earlier time. */
  async setBack() {
    await this.stop("immediate")
    rmSync(this.data, { recursive: true, force: true })
    await run("cp", ["-a", join(this.folder, "kept"), this.data])
    await this.again()
  }

  // ---- a physical standby

  /** Makes and starts one, which follows from now on. `settings` are its own. Restarts the primary. */
  async standby(settings = {}) {
    this.other = join(this.folder, "standby")
    this.otherPort = await freePort()
    await this.stop()
    rmSync(this.other, { recursive: true, force: true })
    await run("cp", ["-a", this.data, this.other])
    // Slots are the primary's.
    rmSync(join(this.other, "pg_replslot"), { recursive: true })
    await run("install", ["-d", "-m", "700", ...(owner.uid ? ["-o", USER] : []), join(this.other, "pg_replslot")])
    const own = { primary_conninfo: `host=127.0.0.1 port=${this.port} user=postgres dbname=postgres application_name=standby`, ...settings }
    const lines = Object.entries(own).map(([key, value]) => `${key} = '${value}'\n`)
    appendFileSync(join(this.other, "postgresql.conf"), lines.join(""))
    await run("install", ["-m", "600", ...(owner.uid ? ["-o", USER] : []), "/dev/null", join(this.other, "standby.signal")])
    await this.again()
    await this.startStandby()
  }

  async startStandby() {
    const log = join(this.folder, "standby.log")
    await this.program("pg_ctl", "start", "-w", "-t", "60", "-s", "-D", this.other, "-l", log, "-o", `-p ${this.otherPort}`).catch((error) => {
      throw new Error(`the standby does not start: ${readFileSync(log, "utf8").slice(-500)}`, { cause: error })
    })
  }

  /** From now on it hears nothing. */
  async stopStandby() {
    await this.program("pg_ctl", "stop", "-w", "-t", "60", "-s", "-D", this.other, "-m", "fast")
  }

  /** The primary crashes, and the standby, which may have been stopped before, takes its place and address with what it has. */
  async promoteStandby(mode = "immediate") {
    await this.stop(mode)
    if (existsSync(join(this.other, "postmaster.pid"))) await this.stopStandby()
    renameSync(this.data, join(this.folder, `left-${Date.now()}`))
    renameSync(this.other, this.data)
    await this.again()
    await this.program("pg_ctl", "promote", "-w", "-t", "60", "-s", "-D", this.data)
  }

  /** One statement on a connection of its own; its rows. */
  async sql(text, { database = "postgres", port = this.port } = {}) {
    const client = new pg.Client({ connectionString: this.url.replace(`:${this.port}/`, `:${port}/`).replace(/[^/]*$/, database) })
    client.on("error", () => {})
    await client.connect()
    try {
      const result = await client.query(text)
      return (Array.isArray(result) ? result.at(-1) : result).rows
    } finally {
      await client.end().catch(() => {})
    }
  }

  async remove() {
    await this.stop("immediate").catch(() => {})
    if (this.other && existsSync(join(this.other, "postmaster.pid"))) await this.stopStandby().catch(() => {})
    rmSync(this.folder, { recursive: true, force: true })
  }
}
