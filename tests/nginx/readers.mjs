// READERS readers follow one stream through nginx by long-polls over HTTP/2; counts their cost to the server behind it.
import { check, get, pause, requests, sessionsFor } from "./crowd.mjs"

const [origin, front, ca] = process.argv.slice(2)
const READERS = 200, APPENDS = 8
const path = "/v1/stream/crowd"
const text = { "content-type": "text/plain" }

const sessions = sessionsFor(READERS, front, ca)
const sentAt = new Map()
const delays = []
async function reader(n, from) {
  const session = sessions[n % sessions.length]
  let offset = from, cursor = "", seen = ""
  for (;;) {
    const { head, body } = await get(session, `${path}?${cursor}live=long-poll&offset=${offset}`)
    if (![200, 204].includes(head[":status"])) throw new Error(`a long-poll was answered ${head[":status"]}: ${body}`)
    if (sentAt.has(body)) delays.push(performance.now() - sentAt.get(body))
    seen += body
    if (head["stream-closed"]) return seen
    offset = head["stream-next-offset"]
    cursor = head["stream-cursor"] ? `cursor=${head["stream-cursor"]}&` : ""
  }
}

await fetch(origin + path, { method: "PUT", headers: text })
const from = (await fetch(origin + path, { method: "HEAD" })).headers.get("stream-next-offset")
const readers = Array.from({ length: READERS }, (_, n) => reader(n, from))
await pause(1500)
const begin = await requests(origin)
let all = ""
for (let n = 0; n < APPENDS; n++) {
  const message = `message ${n};`
  all += message
  sentAt.set(message, performance.now())
  await fetch(origin + path, { method: "POST", headers: text, body: message })
  await pause(1200)
}
const reads = (await requests(origin)) - begin - APPENDS - 1
check(`${READERS} readers cost ${(reads / APPENDS).toFixed(2)} requests per append, at most 2`, reads <= 2 * APPENDS && reads >= APPENDS - 1, `${reads}`)
delays.sort((a, b) => a - b)
check(`news are there in time: p50 ${Math.round(delays[delays.length >> 1])} ms, last ${Math.round(delays.at(-1))} ms`, delays.length === READERS * APPENDS && delays.at(-1) < 3000, `${delays.length} deliveries, last after ${delays.at(-1)} ms`)

// Without an append all waiting readers get the answer together, and not one after the other.
const quiet = await requests(origin)
await pause(7000)
const idle = (await requests(origin)) - quiet - 1
check(`at rest they cost ${idle} requests in two long-polls' time`, idle <= 6, `${idle}`)

await fetch(origin + path, { method: "POST", headers: { "stream-closed": "true" } })
const seen = await Promise.all(readers)
check("every reader has every message once, and the end", seen.every((one) => one === all), seen.find((one) => one !== all))
sessions.forEach((session) => session.close())
