// examples/shapes-access, as its README says: a backend that hands out tokens, and the official client.

import assert from "node:assert/strict"
import { execFile, spawn } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { test } from "node:test"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { World, eventually } from "./support/world.mjs"

const run = promisify(execFile)
const example = fileURLToPath(new URL("./shapes-access/", import.meta.url))

test("each person's client has their own rows, as they change, through a renewed token", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "thalweg-access-"))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const { stdout, stderr } = await run(process.env.THALWEG_BIN, ["token", "new", "--name", "backend", "--shape", "table=notes"])
  writeFileSync(join(folder, "tokens.toml"), stdout)
  const settings = { ELECTRIC_INSECURE: undefined, ELECTRIC_SECRET: "nobody-needs-it" }
  const w = await World.start({ settings, flags: ["--tokens", join(folder, "tokens.toml")] })
  t.after(() => w.stop())
  await w.sql(readFileSync(join(example, "schema.sql"), "utf8"))

  const start = (file, args, env) => {
    const child = spawn(process.execPath, [join(example, file), ...args], { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] })
    t.after(() => child.kill())
    const lines = []
    let said = ""
    child.stderr.on("data", (chunk) => (said += chunk))
    child.stdout.on("data", (chunk) => lines.push(...chunk.toString().split("\n").filter(Boolean)))
    return { lines, said: () => said }
  }
  const backend = start("backend.mjs", [], { PORT: "0", TTL: "3s", THALWEG_SERVER: w.base, THALWEG_TOKEN: stderr.trim().split("\n").at(-1) })
  const address = await eventually(() => backend.lines[0], { what: "the backend" })
  assert.equal((await fetch(address)).status, 401)
  const stranger = start("backend.mjs", [], { PORT: "0", THALWEG_SERVER: w.base, THALWEG_TOKEN: "tw1.nobody.x" })
  const other = await eventually(() => stranger.lines[0], { what: "the backend with a wrong token" })
  for (const user of ["ann", "ben"]) assert.equal((await fetch(other, { headers: { "x-user": user } })).status, 502)
  assert.match(stranger.said(), /thalweg says 401/)

  const ann = start("client.mjs", ["ann"], { BACKEND: address })
  const ben = start("client.mjs", ["ben"], { BACKEND: address })
  const rows = (client) => JSON.parse(client.lines.at(-1) ?? "[]").map((row) => `${row.id} ${row.text}`).sort()
  const shows = (client, expected) =>
    eventually(() => JSON.stringify(rows(client)) === JSON.stringify(expected), { what: `${JSON.stringify(expected)} (${client.lines.at(-1)} ${client.said()})` })
  await shows(ann, ["1 buy milk", "3 read a book"])
  await shows(ben, ["2 call the dentist"])
  await w.sql("UPDATE notes SET owner = 'ben', text = 'buy oat milk' WHERE id = 1")
  await shows(ann, ["3 read a book"])
  await shows(ben, ["1 buy oat milk", "2 call the dentist"])
  // Past the end of the first tokens.
  await new Promise((done) => setTimeout(done, 4000))
  await w.sql("INSERT INTO notes VALUES (4, 'ann', 'sleep', 'carol')")
  await shows(ann, ["3 read a book", "4 sleep"])
  for (const client of [ann, ben]) {
    assert.doesNotMatch(client.lines.join("\n"), /carol|flagged/)
    assert.equal(client.said(), "")
  }
  assert.doesNotMatch(ann.lines.join("\n"), /dentist|oat/)
})
