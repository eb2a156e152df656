// Yjs documents over streams, by the published package: its server keeps each document in a stream of ours, and now and then in a snapshot, from
// which it goes on at an offset that it computes.
import { YjsProvider } from "@durable-streams/y-durable-streams"
import { YjsServer } from "@durable-streams/y-durable-streams/server"
import { afterAll, beforeAll, expect, it } from "vitest"
import * as Y from "yjs"
import { Server } from "./server.ts"

let server: Server
let yjs: YjsServer
const providers: Array<YjsProvider> = []

beforeAll(async () => {
  server = await Server.start()
  yjs = new YjsServer({ port: 0, dsServerUrl: new URL(server.url("")).origin, compactionThreshold: 1500 })
  await yjs.start()
})
afterAll(async () => {
  providers.forEach((provider) => provider.destroy())
  await yjs.stop()
  await server.dispose()
})

const base = () => `${yjs.url}/v1/yjs/test`

async function eventually(what: string, done: () => boolean | Promise<boolean>, ms = 15000): Promise<void> {
  const deadline = Date.now() + ms
  while (!(await done())) {
    if (Date.now() > deadline) throw new Error(`it did not come true: ${what}`)
    await new Promise((next) => setTimeout(next, 10))
  }
}

/** A user that opens the document: its content is in `doc` afterwards. */
async function join(docId: string): Promise<Y.Doc> {
  const doc = new Y.Doc()
  const provider = new YjsProvider({ doc, baseUrl: base(), docId })
  providers.push(provider)
  await eventually(`${docId} is synced`, () => provider.synced)
  return doc
}

/** The snapshot that the document begins with, if there is one. */
async function snapshot(docId: string): Promise<string | null> {
  const answer = await fetch(`${base()}/docs/${docId}?offset=snapshot`, { redirect: "manual" })
  const offset = new URL(answer.headers.get("location")!, base()).searchParams.get("offset")
  return offset === "-1" ? null : offset
}

/** Edits until the document has a snapshot, or another one. */
async function compacted(docId: string, doc: Y.Doc): Promise<void> {
  const before = await snapshot(docId)
  await eventually(`${docId} has a new snapshot`, async () => {
    doc.getText("t").insert(0, "x".repeat(200))
    await new Promise((next) => setTimeout(next, 30))
    return (await snapshot(docId)) !== before
  })
}

const same = (a: Y.Doc, b: Y.Doc) => eventually("both have the same text", () => a.getText("t").toString() === b.getText("t").toString())

it("a document is joined after it was compacted, with nothing new and with something new", async () => {
  const first = await join("a")
  await compacted("a", first)
  // Nothing was appended since: the offset that is asked for lies one byte behind the end.
  const second = await join("a")
  await same(first, second)
  second.getText("t").insert(0, "second: ")
  await same(first, second)
  // Something was: now the same offset lies inside a message.
  const third = await join("a")
  await same(first, third)
  expect(third.getText("t").toString()).toMatch(/^second: x+$/)
})

it("a document is compacted again and again, and no edit is lost or doubled", async () => {
  const [first, second] = [await join("b"), await join("b")]
  for (let round = 0; round < 3; round++) {
    await compacted("b", round % 2 ? first : second)
    first.getText("t").insert(0, `<${round}>`)
    await same(first, second)
    await same(first, await join("b"))
  }
  for (let round = 0; round < 3; round++) expect(first.getText("t").toString().split(`<${round}>`)).toHaveLength(2)
})

it("a document that was compacted survives kill -9", async () => {
  const first = await join("c")
  await compacted("c", first)
  first.getText("t").insert(0, "kept: ")
  const text = first.getText("t").toString()
  await eventually("it is stored", async () => (await join("c")).getText("t").toString() === text)
  await server.kill()
  await server.restart()
  expect((await join("c")).getText("t").toString()).toBe(text)
  const late = await join("c")
  late.getText("t").insert(0, "and edited: ")
  await eventually("others see it", async () => (await join("c")).getText("t").toString().startsWith("and edited: kept: "))
})
