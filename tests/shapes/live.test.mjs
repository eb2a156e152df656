// Waiting for changes: long polls, server-sent events, cursors.

import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { sleep, World } from "./support/world.mjs"

let w
before(async () => (w = await World.start()))
after(() => w?.stop())

describe("long polls", () => {
  test("one waits for a change and gets it at once", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = await w.synced({ table })
    const waiting = shape.step({ live: true })
    await sleep(300)
    const began = Date.now()
    await w.sql(`INSERT INTO ${table} VALUES (1)`)
    const answer = await waiting
    assert.ok(Date.now() - began < 1000, `${Date.now() - began} ms`)
    assert.equal(answer.body.length, 2)
    assert.equal(answer.header("electric-schema"), null)
    assert.equal(answer.header("electric-has-data"), "true")
    assert.equal(answer.header("cache-control"), "public, max-age=5, stale-while-revalidate=5")
  })

  test("without a change it ends with 200 and nothing but up-to-date", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = await w.synced({ table })
    const began = Date.now()
    const answer = await shape.step({ live: true })
    const took = Date.now() - began
    assert.ok(took > 1500 && took < 4000, `${took} ms of 2000`)
    assert.deepEqual(answer.body.map((message) => message.headers.control), ["up-to-date"])
    assert.equal(answer.header("electric-has-data"), "false")
    assert.equal(answer.header("electric-up-to-date"), "")
    const handle = shape.handle
    assert.match(answer.header("etag"), new RegExp(`^"${handle}:0_inf:0_inf:\\d+"$`))
  })

  test("no two empty answers have the same tag", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = await w.synced({ table })
    const [a, b] = await Promise.all([shape.step({ live: true }), w.request({ table, handle: shape.handle, offset: shape.offset, live: "true" })])
    assert.notEqual(a.header("etag"), b.header("etag"))
  })

  test("changes that are there already come at once", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = await w.synced({ table })
    const { offset, handle } = shape
    await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (1)`))
    const began = Date.now()
    const answer = await w.request({ table, handle, offset, live: "true" })
    assert.ok(Date.now() - began < 1000)
    assert.equal(answer.body[0].value.id, "1")
  })

  test("many wait at once and all are woken", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const { handle, offset } = await w.synced({ table })
    const waiting = Array.from({ length: 100 }, () => w.request({ table, handle, offset, live: "true" }))
    await sleep(300)
    await w.sql(`INSERT INTO ${table} VALUES (1)`)
    const answers = await Promise.all(waiting)
    for (const answer of answers) assert.equal(answer.body[0]?.value?.id, "1")
  })

  test("a change that does not concern the shape wakes nobody", async () => {
    const table = await w.table("id int PRIMARY KEY, a text, b text", "(1, 'x', 'y')")
    const shape = await w.synced({ table, where: "a = 'x'", columns: "id,a" })
    const began = Date.now()
    const waiting = shape.step({ live: true })
    await sleep(100)
    await w.sql(`INSERT INTO ${table} VALUES (2, 'other', 'y')`)
    await w.sql(`UPDATE ${table} SET b = 'z' WHERE id = 1`)
    const answer = await waiting
    assert.ok(Date.now() - began > 1500)
    assert.equal(answer.body.length, 1)
  })

  test("live takes any word but false for true", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = w.shape({ table })
    await shape.sync()
    const { offset, handle } = shape
    await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (1)`))
    const cursor = async (live) => (await w.request({ table, handle, offset, live })).header("electric-cursor")
    assert.ok(await cursor("true"))
    assert.ok(await cursor(""), "?live alone is true")
    assert.equal(await cursor("false"), null)
  })

  test("a shape that is deleted while one waits is a 409", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = await w.synced({ table })
    const waiting = w.request({ table, handle: shape.handle, offset: shape.offset, live: "true" })
    await sleep(300)
    const gone = await w.request({ table, handle: shape.handle }, { method: "DELETE" })
    assert.equal(gone.status, 202)
    const answer = await waiting
    assert.equal(answer.status, 409)
    assert.deepEqual(answer.body, [{ headers: { control: "must-refetch" } }])
    assert.notEqual(answer.header("electric-handle"), shape.handle)
  })

  test("who goes away while waiting harms nobody", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const { handle, offset } = await w.synced({ table })
    for (let i = 0; i < 50; i++) {
      const abort = new AbortController()
      const waiting = w.request({ table, handle, offset, live: "true" }, { signal: abort.signal }).catch(() => {})
      await sleep(5)
      abort.abort()
      await waiting
    }
    const shape = await w.synced({ table })
    const [change] = await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (1)`))
    assert.equal(change.value.id, "1")
  })

  test("an offset beyond the end is waited for, then refused", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const { handle } = await w.synced({ table })
    for (const more of [{}, { live: "true" }, { live: "true", live_sse: "true" }]) {
      const began = Date.now()
      await w.refuses({ table, handle, offset: "99999999999999_0", ...more }, { offset: ["out of bounds for this shape"] })
      const took = Date.now() - began
      assert.ok(took > 700 && took < 3000, `${took} ms of 1000 for ${JSON.stringify(more)}`)
    }
  })
})

describe("cursors", () => {
  let usual // the usual 20 s of a long poll
  before(async () => (usual = await World.start({ settings: { ELECTRIC_LONG_POLL_TIMEOUT: undefined } })))
  after(() => usual?.stop())
  const EPOCH = Date.UTC(2024, 9, 9) / 1000
  const next = () => Math.ceil((Math.floor(Date.now() / 1000) - EPOCH) / 20) * 20

  test("a cursor is the next multiple of the wait, so that requests of one moment look the same", async () => {
    const table = await usual.table("id int PRIMARY KEY")
    const { handle, offset } = await usual.synced({ table })
    const early = next()
    const waiting = usual.request({ table, handle, offset, live: "true" })
    await sleep(100)
    await usual.sql(`INSERT INTO ${table} VALUES (1)`)
    const answer = await waiting
    const late = next()
    assert.ok([early, late].includes(Number(answer.header("electric-cursor"))), `${answer.header("electric-cursor")} is not ${early}`)
  })

  test("a cursor that came back is passed by a random step", async () => {
    const table = await usual.table("id int PRIMARY KEY", "(1)")
    const { handle, offset } = await usual.synced({ table })
    const sent = next() + 1000
    const waiting = usual.request({ table, handle, offset, live: "true", cursor: String(sent) })
    await sleep(100)
    await usual.sql(`INSERT INTO ${table} VALUES (2)`)
    const cursor = Number((await waiting).header("electric-cursor"))
    assert.ok(cursor > sent && cursor <= sent + 3600, `${cursor} after ${sent}`)
  })

  test("a cursor that is no number does no harm", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const { handle, offset } = await w.synced({ table })
    await w.sql(`INSERT INTO ${table} VALUES (1)`)
    const answer = await w.request({ table, handle, offset, live: "true", cursor: "abc" })
    assert.ok(answer.status === 200 || answer.status === 400)
    if (answer.status === 200) assert.match(answer.header("electric-cursor"), /^\d+$/)
  })
})

// Reads server-sent events of a shape; `events` are the parsed messages, `text` is everything.
async function listen(world, params, name = "live_sse") {
  const abort = new AbortController()
  const response = await fetch(world.at({ ...params, live: "true", [name]: "true" }), { signal: abort.signal, headers: { accept: "text/event-stream" } })
  const stream = { response, events: [], text: "", ended: false, stop: () => abort.abort() }
  stream.done = (async () => {
    const decoder = new TextDecoder()
    try {
      for await (const piece of response.body) {
        stream.text += decoder.decode(piece, { stream: true })
        stream.events = stream.text
          .split("\n\n")
          .slice(0, -1)
          .filter((event) => event.startsWith("data:"))
          .map((event) => JSON.parse(event.replace(/^data: ?/, "")))
      }
      stream.ended = true
    } catch (error) {
      stream.error = error
    }
  })()
  stream.until = async (condition) => {
    for (let i = 0; i < 300; i++) {
      if (condition(stream)) return stream
      await sleep(50)
    }
    assert.fail(`the events never were ${condition}: ${stream.text}`)
  }
  return stream
}

describe("server-sent events", () => {
  test("each batch of changes comes with its up-to-date", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const { handle, offset } = await w.synced({ table })
    const stream = await listen(w, { table, handle, offset })
    assert.equal(stream.response.status, 200)
    assert.match(stream.response.headers.get("content-type"), /^text\/event-stream/)
    assert.match(stream.response.headers.get("cache-control"), /^public, max-age=\d+$/)
    assert.equal(stream.response.headers.get("electric-handle"), handle)
    assert.ok(stream.response.headers.get("electric-cursor"))
    for (const id of [1, 2, 3]) {
      await w.sql(`INSERT INTO ${table} VALUES (${id})`)
      await stream.until((s) => s.events.some((event) => event.value?.id === String(id)) && s.events.at(-1).headers.control === "up-to-date")
    }
    stream.stop()
    await stream.done
    assert.deepEqual(stream.events.filter((event) => event.key).map((event) => event.value.id), ["1", "2", "3"])
    for (const event of stream.events.filter((e) => e.headers.control)) assert.match(event.headers.global_last_seen_lsn, /^\d+$/)
  })

  test("what is there already comes first", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const shape = await w.synced({ table })
    const { handle, offset } = shape
    await shape.changes(() => w.sql(`INSERT INTO ${table} VALUES (1), (2)`), 2)
    const stream = await listen(w, { table, handle, offset })
    await stream.until((s) => s.events.length >= 3)
    stream.stop()
    assert.deepEqual(stream.events.slice(0, 3).map((event) => event.value?.id ?? event.headers.control), ["1", "2", "up-to-date"])
  })

  test("the old name of the parameter works as well", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const { handle, offset } = await w.synced({ table })
    const stream = await listen(w, { table, handle, offset }, "experimental_live_sse")
    assert.match(stream.response.headers.get("content-type"), /^text\/event-stream/)
    stream.stop()
  })

  test("it needs live", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const { handle, offset } = await w.synced({ table })
    await w.refuses({ table, handle, offset, live_sse: "true" }, { live_sse: ["can't be true unless live is also true"] })
  })

  test("an unknown handle is a plain 409", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const answer = await w.request({ table, handle: "nope", offset: "0_0", live: "true", live_sse: "true" })
    assert.equal(answer.status, 409)
    assert.deepEqual(answer.body, [{ headers: { control: "must-refetch" } }])
  })

  test("the stream ends when its shape does", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const { handle, offset } = await w.synced({ table })
    const stream = await listen(w, { table, handle, offset })
    await w.request({ table, handle }, { method: "DELETE" })
    await stream.until((s) => s.ended)
    const answer = await w.request({ table, handle, offset, live: "true", live_sse: "true" })
    assert.equal(answer.status, 409)
  })

  test("many listen at once", async () => {
    const table = await w.table("id int PRIMARY KEY")
    const { handle, offset } = await w.synced({ table })
    const streams = await Promise.all(Array.from({ length: 40 }, () => listen(w, { table, handle, offset })))
    await w.sql(`INSERT INTO ${table} VALUES (1)`)
    await Promise.all(streams.map((stream) => stream.until((s) => s.events.some((event) => event.value?.id === "1"))))
    for (const stream of streams) stream.stop()
  })
})
