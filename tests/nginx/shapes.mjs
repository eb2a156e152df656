// CLIENTS clients follow one shape through nginx over HTTP/2, as the official client does; counts their cost to the server behind it.
import { execFileSync } from "node:child_process"
import { check, get, pause, requests, sessionsFor } from "./crowd.mjs"

const [origin, front, ca, secret] = process.argv.slice(2)
const CLIENTS = 200, INSERTS = 8
const sql = (text) => execFileSync(process.env.PSQL, ["-qAt", "-d", process.env.PG_URL, "-c", text], { encoding: "utf8" })

const sessions = sessionsFor(CLIENTS, front, ca)
const sentAt = new Map(), delays = []
let stopping = false, refetched = 0

// Rows by key. The parameters are in the order of their names, and `cursor` is echoed.
async function client(n, rows) {
  const session = sessions[n % sessions.length]
  let offset = "-1", handle, cursor, upToDate = false, expired
  while (!stopping) {
    const query = [upToDate && cursor && `cursor=${cursor}`, expired && `expired_handle=${expired}`, handle && `handle=${handle}`, upToDate && "live=true", `offset=${offset}`, `secret=${secret}`, "table=items"]
    const { head, body } = await get(session, `/v1/shape?${query.filter(Boolean).join("&")}`)
    if (head[":status"] === 409) {
      [expired, offset, handle, cursor, upToDate] = [handle, "-1", undefined, undefined, false]
      rows.clear(), refetched++
      continue
    }
    if (head[":status"] !== 200) throw new Error(`a request was answered ${head[":status"]}: ${body}`)
    for (const { key, value, headers } of JSON.parse(body)) {
      if (headers.operation === "delete") rows.delete(key)
      else if (headers.operation) rows.set(key, { ...rows.get(key), ...value })
      if (upToDate && headers.operation && sentAt.has(value.title)) delays.push(performance.now() - sentAt.get(value.title))
    }
    handle = head["electric-handle"], offset = head["electric-offset"], cursor = head["electric-cursor"]
    upToDate = head["electric-up-to-date"] !== undefined, expired = undefined
  }
}

const begin = await requests(origin)
const all = Array.from({ length: CLIENTS }, () => new Map())
const clients = all.map((rows, n) => client(n, rows))
for (let n = 0; n < 100 && !all.every((rows) => rows.size >= 2001); n++) await pause(100)
const first = (await requests(origin)) - begin - 1
check(`${CLIENTS} clients get all rows by ${first} requests to the server, at most 8`, first <= 8 && all.every((rows) => rows.size === 2001), `${all.map((rows) => rows.size).slice(0, 5)}`)
await pause(1500)

const before = await requests(origin)
for (let n = 0; n < INSERTS; n++) {
  const title = `live ${n}`
  sentAt.set(title, performance.now())
  sql(`INSERT INTO items VALUES (${10000 + n}, '${title}')`)
  await pause(1200)
}
const reads = (await requests(origin)) - before - 1
check(`they cost ${(reads / INSERTS).toFixed(2)} requests per change, at most 2`, reads <= 2 * INSERTS && reads >= INSERTS - 1, `${reads}`)
delays.sort((a, b) => a - b)
check(`changes are there in time: p50 ${Math.round(delays[delays.length >> 1])} ms, last ${Math.round(delays.at(-1))} ms`, delays.length === CLIENTS * INSERTS && delays.at(-1) < 3000, `${delays.length} deliveries, last after ${delays.at(-1)} ms`)

// The table is emptied: every client must refetch, and cached answers must not send it in circles.
sql("TRUNCATE items; INSERT INTO items VALUES (1, 'after')")
for (let n = 0; n < 150 && !all.every((rows) => rows.size === 1); n++) await pause(100)
check("a shape that is gone is fetched again by all", all.every((rows) => rows.size === 1 && [...rows.values()][0].title === "after"), `${all.map((rows) => rows.size).slice(0, 5)}`)
check(`and by nobody more than twice (${refetched} of ${CLIENTS})`, refetched >= CLIENTS && refetched <= 2 * CLIENTS)
stopping = true
sql("INSERT INTO items VALUES (2, 'end')")
await Promise.all(clients)
sessions.forEach((session) => session.close())
