// `thalweg dev` on a database that happened to be in the environment: its messages, its remains, and the rights of web pages.

import assert from "node:assert/strict"
import http from "node:http"
import { afterEach, test } from "node:test"
import { World, eventually } from "./support/world.mjs"

let w
afterEach(async () => {
  await w?.stop()
  w = undefined
})

// As a developer's shell has it: an address, and nothing about secrets.
const dev = async (options = {}) => (w = await World.start({ command: "dev", settings: { ELECTRIC_INSECURE: undefined }, ...options }))

const slots = () => w.sql("SELECT slot_name, temporary FROM pg_replication_slots WHERE database = current_database()")
const publications = () => w.sql("SELECT pubname FROM pg_publication")

test("dev names the database in its banner", async () => {
  await dev()
  assert.match(w.log(), new RegExp(`database +postgres://\\S+/${w.database}\\S*: its tables are served as shapes, to every client .* slot is dropped at the end`))
})

test("dev leaves neither slot nor publication in the database", async () => {
  await dev()
  const table = await w.table("id int PRIMARY KEY", "(1)")
  assert.equal((await w.request({ table, offset: "-1" })).status, 200)
  assert.deepEqual((await slots()).map((slot) => slot.temporary), ["t"])
  assert.equal((await publications()).length, 1)
  assert.equal((await w.kill("SIGTERM")).code, 0)
  await eventually(async () => (await slots()).length === 0, { what: "the slot's end" })
  assert.deepEqual(await publications(), [])
  // And begins again as if nothing had been.
  await w.serve()
  assert.equal((await w.request({ table, offset: "-1" })).body[0].value.id, "1")
  await w.kill("SIGKILL")
  await eventually(async () => (await slots()).length === 0, { what: "the slot's end after kill -9" })
})

test("a publication that a killed dev left is dropped when the next one ends", async () => {
  await dev()
  await w.kill("SIGKILL")
  assert.equal((await publications()).length, 1)
  await w.serve()
  assert.equal((await w.kill("SIGTERM")).code, 0)
  assert.deepEqual(await publications(), [])
})

test("dev leaves a publication that it found", async () => {
  await dev({ serve: false })
  await w.sql(`CREATE PUBLICATION thalweg_publication_${w.database}`)
  await w.serve()
  assert.equal((await w.kill("SIGTERM")).code, 0)
  assert.equal((await publications()).length, 1)
})

test("dev does not take the slot of a server that is only down", async () => {
  await dev({ serve: false })
  Object.assign(w, { command: "serve", settings: { ...w.settings, ELECTRIC_INSECURE: "true" } })
  await w.serve()
  await w.kill("SIGTERM")
  const before = await slots()
  assert.equal(before.length, 1)
  // In a folder of its own, as a developer would.
  Object.assign(w, { command: "dev", data: `${w.folder}/other`, settings: { ...w.settings, ELECTRIC_INSECURE: undefined, ELECTRIC_REPLICATION_STREAM_ID: undefined } })
  await w.serve()
  await w.kill("SIGTERM")
  await eventually(async () => (await slots()).length === 1, { what: "the end of dev's own slot" })
  assert.deepEqual(await slots(), before)
})

// A request as a browser sends it: `fetch` sets its own host.
const ask = (path, headers, method = "GET") =>
  new Promise((resolve, reject) => {
    const url = new URL(w.base)
    const request = http.request({ host: url.hostname, port: url.port, path, method, headers: { host: url.host, ...headers } }, (answer) => {
      let text = ""
      answer.on("data", (chunk) => (text += chunk)).on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, text }))
    })
    request.on("error", reject).end()
  })

test("web pages get no row, no name and no backup of a server without tokens", async () => {
  await dev()
  const table = await w.table("id int PRIMARY KEY, note text", "(1, 'SECRET')")
  const shape = `/v1/shape?table=${table}&offset=-1`
  assert.match((await ask(shape, {})).text, /SECRET/)
  const port = new URL(w.base).port
  assert.match((await ask(shape, { host: `localhost:${port}`, origin: "http://localhost:5173" })).text, /SECRET/)
  const pages = [
    { origin: "https://evil.example" },
    { origin: "null" },
    { host: `evil.example:${port}` },
    { host: `evil.example:${port}`, origin: `http://evil.example:${port}` },
    { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script" },
  ]
  const targets = [
    ["GET", shape],
    ["POST", shape],
    ["DELETE", `/v1/shape?table=${table}`],
    ["OPTIONS", "/v1/shape"],
    ["GET", `/v1/%73hape?table=${table}&offset=-1`],
    ["GET", "/v1/admin/shapes"],
    ["POST", "/v1/admin/backup"],
    ["GET", "/v1/stream/__ds/streams"],
    ["PUT", "/v1/stream/planted"],
    ["OPTIONS", "/v1/stream/planted"],
    ["GET", "/metrics"],
    ["GET", "/"],
  ]
  for (const headers of pages)
    for (const [method, path] of targets) {
      const answer = await ask(path, headers, method)
      const what = `${method} ${path} ${JSON.stringify(headers)}`
      assert.equal(answer.status, 403, what)
      assert.match(answer.text, /"code":"(host|origin)_not_allowed"/, what)
      assert.match(answer.text, /--allow-/, what)
      assert.equal(answer.headers["access-control-allow-origin"], undefined, what)
      assert.doesNotMatch(answer.text, /SECRET/, what)
    }
  // For browsers that do not name the embedding page, answers say which pages may embed them.
  for (const path of [shape, "/v1/stream/planted", "/metrics", "/health"])
    assert.equal((await ask(path, {})).headers["cross-origin-resource-policy"], "same-origin", path)
  assert.equal((await ask("/v1/stream/planted", {})).status, 404)
  assert.equal((await w.request({ table, offset: "-1" })).status, 200)
})
