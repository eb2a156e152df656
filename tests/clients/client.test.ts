// The official client against the binary.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { Server, until } from "./server.ts"

let server: Server
let names = 0
const fresh = (): string => server.url(`clients/${names++}`)
const numbers = (n: number, from = 0) => Array.from({ length: n }, (_, i) => ({ n: from + i }))

beforeAll(async () => {
  server = await Server.start()
})
afterAll(async () => {
  await server.dispose()
})

async function read<T>(url: string, offset?: string): Promise<T[]> {
  const response = await stream<T>({ url, live: false, ...(offset === undefined ? {} : { offset }) })
  return await response.json<T>()
}

// The client sends waiting messages as one batch; an array given to `append` would be one message.
async function appendAll(handle: DurableStream, values: unknown[]): Promise<void> {
  await Promise.all(values.map((value) => handle.append(JSON.stringify(value))))
}

describe("create, append, read", () => {
  it("reads back the text that was appended", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "text/plain" })
    await handle.append("first ")
    await handle.append("second")
    const response = await stream({ url, live: false })
    expect(await response.text()).toBe("first second")
    expect(response.contentType).toContain("text/plain")
  })

  it("reads back binary bytes exactly", async () => {
    const url = fresh()
    const bytes = Uint8Array.from({ length: 70000 }, (_, i) => (i * 31) & 255)
    const handle = await DurableStream.create({ url, contentType: "application/octet-stream" })
    await handle.append(bytes.subarray(0, 1))
    await handle.append(bytes.subarray(1))
    const response = await stream({ url, live: false })
    expect(Buffer.from(await response.body()).equals(Buffer.from(bytes))).toBe(true)
  })

  it("keeps JSON messages and their order, one by one and in batches", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    await handle.append(JSON.stringify({ n: 0 }))
    await appendAll(handle, numbers(50, 1))
    await Promise.all(numbers(20, 51).map((value) => handle.append(JSON.stringify(value))))
    const values = await read<{ n: number }>(url)
    expect(values.slice(0, 51)).toEqual(numbers(51))
    expect(values.slice(51).map((value) => value.n).sort((a, b) => a - b)).toEqual(numbers(20, 51).map((value) => value.n))
  })

  it("resumes from the offset of an earlier read", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    await appendAll(handle, numbers(3))
    const response = await stream<{ n: number }>({ url, live: false })
    await response.json()
    await appendAll(handle, numbers(2, 3))
    expect(await read(url, response.offset)).toEqual(numbers(2, 3))
  })

  it("tells existence, type, offset and closure by HEAD, and deletes", async () => {
    const url = fresh()
    expect((await DurableStream.head({ url })).exists).toBe(false)
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    await handle.append("1")
    expect(await handle.head()).toMatchObject({ exists: true, streamClosed: false, contentType: expect.stringContaining("json") })
    await handle.delete()
    expect((await DurableStream.head({ url })).exists).toBe(false)
    await expect(read(url)).rejects.toMatchObject({ status: 404 })
  })
})

describe.each(["long-poll", "sse"] as const)("live by %s", (live) => {
  it("delivers what is there and what is appended later, in order and once", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    await appendAll(handle, numbers(5))
    const seen: Array<{ n: number }> = []
    const response = await stream<{ n: number }>({ url, live, offset: "-1" })
    response.subscribeJson((batch) => {
      seen.push(...batch.items)
    })
    await until(() => seen.length >= 5)
    for (let n = 5; n < 40; n++) await handle.append(JSON.stringify({ n }))
    await until(() => seen.length >= 40)
    response.cancel()
    expect(seen).toEqual(numbers(40))
  })

  it("delivers text with line breaks of every kind unchanged", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "text/plain" })
    const parts = ["one\n", "\ntwo: {}\n\n", "data: three\n", "event: control\n\n", "end"]
    let seen = ""
    const response = await stream({ url, live, offset: "-1" })
    response.subscribeText((chunk) => {
      seen += chunk.text
    })
    for (const part of parts) await handle.append(part)
    await until(() => seen.length >= parts.join("").length)
    response.cancel()
    expect(seen).toBe(parts.join(""))
  })

  it("ends when the stream is closed, with the last message", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    const seen: Array<{ n: number }> = []
    const response = await stream<{ n: number }>({ url, live, offset: "-1" })
    response.subscribeJson((batch) => {
      seen.push(...batch.items)
    })
    await handle.append(JSON.stringify({ n: 0 }))
    await until(() => seen.length >= 1)
    await handle.close({ body: JSON.stringify({ n: 1 }) })
    await response.closed
    await until(() => seen.length >= 2)
    expect(seen).toEqual(numbers(2))
    expect(response.streamClosed).toBe(true)
  })

  it("goes on by itself after the server was killed and started again", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    const seen: Array<{ n: number }> = []
    const response = await stream<{ n: number }>({ url, live, offset: "-1" })
    response.subscribeJson((batch) => {
      seen.push(...batch.items)
    })
    await appendAll(handle, numbers(3))
    await until(() => seen.length >= 3)
    await server.kill()
    await server.restart()
    await appendAll(handle, numbers(3, 3))
    await until(() => seen.length >= 6, 30000)
    response.cancel()
    expect(seen).toEqual(numbers(6))
  })
})

it("delivers binary bytes over SSE", async () => {
  const url = fresh()
  const bytes = Uint8Array.from({ length: 3000 }, (_, i) => (i * 7) & 255)
  const handle = await DurableStream.create({ url, contentType: "application/octet-stream" })
  const seen: number[] = []
  const response = await stream({ url, live: "sse", offset: "-1" })
  response.subscribeBytes((chunk) => {
    seen.push(...chunk.data)
  })
  await handle.append(bytes.subarray(0, 1000))
  await handle.append(bytes.subarray(1000))
  await until(() => seen.length >= bytes.length)
  response.cancel()
  expect(seen).toEqual([...bytes])
})

it("tells a conflict of Stream-Seq from other conflicts, by the words that clients look for", async () => {
  const name = "conflicts"
  const type = { "content-type": "text/plain" }
  await fetch(server.url(name), { method: "PUT", headers: type })
  const append = (headers: Record<string, string>, body = "x") => fetch(server.url(name), { method: "POST", headers, body })
  expect((await append({ ...type, "stream-seq": "b" })).status).toBe(204)
  const conflict = await append({ ...type, "stream-seq": "a" })
  // PHP: "sequence conflict" in the body; TypeScript and Elixir: "sequence" in the message.
  expect([conflict.status, (await conflict.text()).toLowerCase()]).toEqual([409, expect.stringContaining("sequence conflict")])
  const error = await new DurableStream({ url: server.url(name), contentType: "text/plain" }).append("x", { seq: "a" }).catch((e: Error) => e)
  expect((error as Error).message.toLowerCase()).toContain("sequence")
  for (const headers of [{ "content-type": "application/json" }, { ...type, "if-match": '"0000000000000064_0000000000000000"' }]) {
    const other = await append(headers, "1")
    expect([409, 412]).toContain(other.status)
    expect((await other.text()).toLowerCase()).not.toContain("sequence")
  }
})

describe("closing", () => {
  it("is final and idempotent", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    await handle.append(JSON.stringify({ n: 0 }))
    const { finalOffset } = await handle.close()
    expect((await handle.close()).finalOffset).toBe(finalOffset)
    await expect(handle.append(JSON.stringify({ n: 1 }))).rejects.toThrow()
    expect(await read(url)).toEqual(numbers(1))
    expect(await handle.head()).toMatchObject({ streamClosed: true })
  })
})

describe("forks", () => {
  it("share the past and go their own way, also after a kill", async () => {
    const url = fresh()
    const source = await DurableStream.create({ url, contentType: "application/json" })
    await appendAll(source, numbers(3))
    const { offset } = (await source.head()) as { offset: string }
    await source.append(JSON.stringify({ n: "only in the source" }))
    const forked = fresh()
    await DurableStream.create({
      url: forked,
      contentType: "application/json",
      headers: { "Stream-Forked-From": new URL(url).pathname, "Stream-Fork-Offset": offset },
    })
    const fork = await DurableStream.connect({ url: forked })
    await fork.append(JSON.stringify({ n: "only in the fork" }))
    await server.kill()
    await server.restart()
    expect(await read(forked)).toEqual([...numbers(3), { n: "only in the fork" }])
    expect(await read(url)).toEqual([...numbers(3), { n: "only in the source" }])
  })
})

describe("IdempotentProducer", () => {
  // The client reports network failures and leaves the repeating to its user: that is what makes the server's memory count.
  const persistent: typeof fetch = async (input, init) => {
    for (;;) {
      try {
        return await fetch(input, init)
      } catch {
        await new Promise((done) => setTimeout(done, 10))
      }
    }
  }
  const producer = (handle: DurableStream, id: string, errors: Error[], more = {}) =>
    new IdempotentProducer(handle, id, { lingerMs: 1, maxBatchBytes: 200, fetch: persistent, onError: (error) => errors.push(error), ...more })

  it("delivers everything once and in order, pipelined", async () => {
    const url = fresh()
    const errors: Error[] = []
    const one = producer(await DurableStream.create({ url, contentType: "application/json" }), "one", errors)
    for (const value of numbers(500)) one.append(JSON.stringify(value))
    await one.flush()
    expect(errors).toEqual([])
    expect(await read(url)).toEqual(numbers(500))
    await one.close(JSON.stringify({ n: 500 }))
    expect(await read(url)).toEqual(numbers(501))
  })

  it("delivers everything once and in order while the server is killed and started again", async () => {
    const url = fresh()
    const errors: Error[] = []
    const one = producer(await DurableStream.create({ url, contentType: "application/json" }), "one", errors)
    let sent = 0
    for (let round = 0; round < 4; round++) {
      const restarted = (async () => {
        await new Promise((done) => setTimeout(done, 40))
        await server.kill()
        await server.restart()
      })()
      for (let i = 0; i < 400; i++) {
        one.append(JSON.stringify({ n: sent++ }))
        if (i % 20 === 0) await new Promise((done) => setTimeout(done, 2))
      }
      await restarted
      await one.flush()
    }
    expect(errors).toEqual([])
    expect(await read(url)).toEqual(numbers(sent))
  })

  it("is recognised after a restart: a repeated append is not taken twice", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    const append = async (seq: number, epoch = 0) =>
      await fetch(url, {
        method: "POST",
        headers: { "content-type": "application/json", "producer-id": "p", "producer-epoch": `${epoch}`, "producer-seq": `${seq}` },
        body: JSON.stringify({ n: seq }),
      })
    for (let seq = 0; seq < 3; seq++) expect((await append(seq)).status).toBe(200)
    await server.kill()
    await server.restart()
    for (let seq = 0; seq < 3; seq++) expect((await append(seq)).status).toBe(204)
    expect((await append(3)).status).toBe(200)
    expect((await append(9)).status).toBe(409)
    expect(await read(handle.url)).toEqual(numbers(4))
  })

  it("fences the producer of an older epoch, also after a restart", async () => {
    const url = fresh()
    const handle = await DurableStream.create({ url, contentType: "application/json" })
    const errors: Error[] = []
    const older = producer(handle, "p", errors)
    older.append(JSON.stringify({ n: 0 }))
    await older.flush()
    const newer = producer(handle, "p", [], { epoch: 1 })
    newer.append(JSON.stringify({ n: 1 }))
    await newer.flush()
    await server.kill()
    await server.restart()
    older.append(JSON.stringify({ n: 666 }))
    await Promise.race([older.flush().catch((error: Error) => errors.push(error)), until(() => errors.length > 0)])
    expect(errors.length).toBeGreaterThan(0)
    expect(await read(url)).toEqual(numbers(2))
  })
})

it.skipIf(process.env.THALWEG_KIND === "peer")("a graceful stop ends with code 0 and loses nothing", async () => {
  const url = fresh()
  const handle = await DurableStream.create({ url, contentType: "application/json" })
  await appendAll(handle, numbers(10))
  expect(await server.kill("SIGTERM")).toBe(0)
  await server.restart()
  expect(await read(url)).toEqual(numbers(10))
})
