// Clients that take their time, and crowds: they hold what they are given and no longer, and the server's memory does not follow them.
//
// The server has 500 connections, and takes bodies of up to 8 MiB.

import { readFileSync } from "node:fs"
import { ADMIN, LOG, address, ask, check, eventually, hold, memory, pause } from "./attack.mjs"

const auth = `Authorization: Bearer ${ADMIN}`
const head = (line, more = "") => `${line} HTTP/1.1\r\nHost: ${address.host}\r\n${auth}\r\n${more}`
const crowd = (count, bytes) => Promise.all(Array.from({ length: count }, () => hold(bytes)))
const seconds = (from) => (Date.now() - from) / 1000
const served = async () => (await ask("/v1/stream/x", { token: ADMIN })).text === "x"

await ask("/v1/stream/x", { token: ADMIN, method: "PUT", headers: { "content-type": "text/plain" }, body: "x" })
const idle = memory()

// ---- taking their time, all at once: the longest decides how long this takes

const began = Date.now()
const silent = await crowd(50)
const heads = await crowd(50, "GET /v1/stream/x HTTP/1.1\r\nX: ")
const posts = await crowd(20, head("POST /v1/stream/x", "Content-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n"))
const chunks = await crowd(20, head("POST /v1/stream/x", "Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"))
// A large first piece buys no time.
const credit = await crowd(10, head("POST /v1/stream/x", "Content-Type: text/plain\r\nContent-Length: 4000000\r\n\r\n") + "x".repeat(500_000))
const drip = setInterval(() => {
  for (const one of [...heads, ...posts, ...credit]) one.closed || one.socket.write("x")
  for (const one of chunks) one.closed || one.socket.write("1\r\nx\r\n")
}, 500)
const all = (group) => group.every((one) => one.closed)
const ended = {}
const look = setInterval(() => {
  for (const [name, group] of Object.entries({ silent, heads, posts, chunks, credit })) if (all(group)) ended[name] ??= seconds(began)
}, 100)
check("others are served meanwhile", await served())
// At most two windows of 30 s, and the time of closing.
await eventually(() => Object.keys(ended).length === 5, 90000)
clearInterval(drip)
clearInterval(look)
const within = (name, from, to) => check(`${name}: they are ended in time`, ended[name] >= from && ended[name] <= to, `${ended[name]} s`)
within("silent", 9, 16)
within("heads", 9, 16)
within("posts", 29, 45)
within("chunks", 29, 45)
within("credit", 29, 80)
check("a client that says nothing is told nothing", silent.every((one) => one.text === ""))
check("a client that is too slow is told so", [...heads, ...posts, ...chunks, ...credit].every((one) => one.text.startsWith("HTTP/1.1 408 ")), posts[0].text.slice(0, 100))
check("nothing of it was stored", await served())

// ---- more than there may be

const many = await crowd(1500, head("GET /v1/stream/x", "\r\n"))
await eventually(() => many.filter((one) => one.closed).length >= 1000)
const told = many.filter((one) => one.text.startsWith("HTTP/1.1 503 ")).length
const open = many.filter((one) => !one.closed && one.text.startsWith("HTTP/1.1 200 ")).length
check("so many are served as there may be", open > 400 && open <= 500, open)
check("the others are told or closed", told > 0 && many.length - open === many.filter((one) => one.closed).length, `${told} told, ${open} open`)
const warnings = () => (readFileSync(LOG, "utf8").match(/max_connections is reached/g) ?? []).length
check("the log says so once", warnings() === 1, warnings())
many.forEach((one) => one.socket.destroy())
check("when they are gone others are served", await eventually(served))
const again = await crowd(700, head("GET /v1/stream/x", "\r\n"))
check("and once more when it happens again", await eventually(() => warnings() === 2), warnings())
again.forEach((one) => one.socket.destroy())
await eventually(served)

// ---- memory

const bodies = await crowd(300, head("POST /v1/stream/x", "Content-Type: text/plain\r\nContent-Length: 8000000\r\n\r\n") + "x".repeat(100_000))
await pause(1000)
check("bodies cost what has come of them, not what was announced", memory() < idle + 150, `${idle} → ${memory()} MiB`)
bodies.forEach((one) => one.socket.destroy())

await ask("/v1/stream/large", { token: ADMIN, method: "PUT", headers: { "content-type": "text/plain" }, body: "l".repeat(8 << 20) })
const readers = await crowd(200, head("GET /v1/stream/large", "\r\n").repeat(50))
readers.forEach((one) => one.socket.pause())
await pause(2000)
check("readers that do not read share what is there for them", memory() < idle + 250, `${idle} → ${memory()} MiB`)
readers.forEach((one) => one.socket.destroy())

const pipelines = await crowd(20, head("GET /v1/stream/large", "\r\n").repeat(20_000))
pipelines.forEach((one) => one.socket.pause())
await pause(2000)
check("requests that wait behind others are not taken in", memory() < idle + 250, `${idle} → ${memory()} MiB`)
pipelines.forEach((one) => one.socket.destroy())

const polls = await crowd(400, head("GET /v1/stream/x?offset=now&live=sse", "\r\n"))
await pause(500)
check("a client that waits costs little", memory() < idle + 250, `${idle} → ${memory()} MiB`)
polls.forEach((one) => one.socket.destroy())
check("and all is as before", await eventually(served))
