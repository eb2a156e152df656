// Appends go on and a receiver fails at random while the server is killed again and again. Then: every acknowledged append was
// announced and taken, cursors never went backwards, signatures verify, a retry waits across a restart, claims are fenced.
//
//   node crash.mjs BINARY FOLDER KILLS SEED
import { spawn } from "node:child_process"
import { createPublicKey, verify } from "node:crypto"
import { existsSync, openSync, readFileSync, rmSync, statSync } from "node:fs"
import { createServer } from "node:http"
import { setTimeout as sleep } from "node:timers/promises"

const [binary, folder, kills, seed] = [process.argv[2], process.argv[3], Number(process.argv[4]), Number(process.argv[5])]
let state = seed + 1
const random = () => ((state = (state * 1103515245 + 12345) % 2147483648) / 2147483648)
let failures = 0
const check = (claim, holds, detail = "") => {
  if (!holds) failures++
  console.log(holds ? `ok      ${claim}` : `FAILED  ${claim} ${detail}`)
}

// ---- the server

let child = null
let base = null
const log = openSync(`${folder}/server.log`, "a")
async function start() {
  rmSync(`${folder}/ready`, { force: true })
  child = spawn(binary, ["serve", "--listen", "127.0.0.1:0", "--data", `${folder}/data`, "--ready-file", `${folder}/ready`,
    "--webhook-targets", "local", "--settle-after", "200ms"], { stdio: ["ignore", log, log] })
  for (let i = 0; i < 3000; i++) {
    const text = existsSync(`${folder}/ready`) ? readFileSync(`${folder}/ready`, "utf8").trim() : ""
    if (text) return void (base = `http://${text}/v1/stream/`)
    if (child.exitCode !== null) throw new Error("the server does not start")
    await sleep(10)
  }
  throw new Error("the server is not ready")
}
async function kill(signal = "SIGKILL") {
  base = null
  const gone = new Promise((resolve) => child.once("exit", resolve))
  child.kill(signal)
  await gone
}
async function send(method, path, body, headers = {}) {
  const url = base && base + path
  if (!url) throw new Error("down")
  const response = await fetch(url, { method, headers: { "content-type": "application/json", ...headers },
    body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.timeout(5000) })
  const text = await response.text()
  return { status: response.status, headers: response.headers, body: text.startsWith("{") ? JSON.parse(text) : text }
}

// ---- the receiver

let kind = true // whether it is in a mood to fail
let keys = []
const seen = { deliveries: 0, failed: 0, badSignatures: 0, backwards: [] }
const lastAcked = new Map()
const taken = new Map()
let generation = 0
function signed(header, raw) {
  const parts = Object.fromEntries((header ?? "").split(",").map((part) => part.split(/=(.*)/s).slice(0, 2)))
  const jwk = keys.find((key) => key.kid === parts.kid)
  return jwk && Math.abs(Date.now() / 1000 - Number(parts.t)) < 300 &&
    verify(null, Buffer.from(`${parts.t}.${raw}`), createPublicKey({ key: jwk, format: "jwk" }), Buffer.from(parts.ed25519, "base64url"))
}
const receiver = createServer(async (request, response) => {
  let raw = ""
  for await (const piece of request) raw += piece
  seen.deliveries++
  if (!signed(request.headers["webhook-signature"], raw)) seen.badSignatures++
  const wake = JSON.parse(raw)
  if (wake.generation < generation) seen.backwards.push(`generation ${wake.generation} after ${generation}`)
  generation = wake.generation
  for (const { path, acked_offset, tail_offset } of wake.streams) {
    const before = lastAcked.get(path) ?? "-1"
    if (before !== "-1" && (acked_offset === "-1" || acked_offset < before)) seen.backwards.push(`${path}: ${acked_offset} after ${before}`)
    if (acked_offset !== "-1" && tail_offset <= acked_offset) seen.backwards.push(`${path}: nothing new`)
    lastAcked.set(path, acked_offset)
  }
  const mood = kind ? 1 : random()
  if (mood < 0.2) return seen.failed++, response.writeHead(500).end()
  if (mood < 0.3) return seen.failed++, request.socket.destroy()
  if (mood < 0.4) return response.writeHead(200).end("{}") // takes it, and never comes back
  for (const { path, tail_offset } of wake.streams) if (tail_offset > (taken.get(path) ?? "")) taken.set(path, tail_offset)
  response.writeHead(200, { "content-type": "application/json" }).end('{"done":true}')
})
await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve))
const hook = `http://127.0.0.1:${receiver.address().port}/`

// ---- the run

const acknowledged = new Map()
let writing = true
async function write(name) {
  while (writing) {
    try {
      const made = await send("PUT", name)
      if (made.status >= 400) throw new Error(`${made.status}`)
      for (;;) {
        if (!writing) return
        const got = await send("POST", name, { n: 1 })
        if (got.status >= 300) throw new Error(`${got.status}`)
        acknowledged.set(name, got.headers.get("stream-next-offset"))
        await sleep(random() * 20)
      }
    } catch {
      await sleep(10)
    }
  }
}

try {
  await start()
  keys = (await send("GET", "__ds/jwks.json")).body.keys
  check("the keys are readable by their owner alone", (statSync(`${folder}/data/subscriptions.keys`).mode & 0o777) === 0o600)
  const subscription = { type: "webhook", pattern: "e/*", webhook: { url: hook }, lease_ttl_ms: 1000 }
  check("a webhook subscription is made", (await send("PUT", "__ds/subscriptions/hook", subscription)).status === 201)

  kind = false
  const writers = ["e/a", "e/b", "e/c"].map(write)
  for (let n = 0; n < kills; n++) {
    await sleep(300 + random() * 1500)
    // A stream whose only append is acknowledged right before the end: nothing but the restart can find it.
    await send("PUT", `e/quiet-${n}`)
    const got = await send("POST", `e/quiet-${n}`, { n })
    acknowledged.set(`e/quiet-${n}`, got.headers.get("stream-next-offset"))
    await kill()
    await start()
  }
  // Streams that are first seen after the kills, too.
  writers.push(write("e/late"))
  await sleep(500)
  writing = false
  await Promise.all(writers)
  kind = true
  check("appends were acknowledged and the receiver has failed", acknowledged.size === 4 + kills && seen.deliveries > 0)
  const missing = () => [...acknowledged].filter(([path, offset]) => !((taken.get(path) ?? "") >= offset))
  for (let i = 0; i < 1500 && missing().length; i++) await sleep(100)
  check("every acknowledged append was announced and taken", missing().length === 0, JSON.stringify(missing()))
  check("cursors and generations never went backwards", seen.backwards.length === 0, seen.backwards.slice(0, 3).join("; "))
  check("every signature verified, before and after each restart", seen.badSignatures === 0)
  const confirmed = await send("PUT", "__ds/subscriptions/hook", subscription)
  check("the subscription is confirmed after all this", confirmed.status === 200)
  console.log(`        ${kills} kills, ${seen.deliveries} deliveries, ${seen.failed} failed on purpose, generation ${generation}`)
  check("it is removed", (await send("DELETE", "__ds/subscriptions/hook")).status === 204)

  // A retry keeps its time across a restart.
  const deaf = { type: "webhook", streams: ["r/a"], webhook: { url: "http://127.0.0.1:9/" }, lease_ttl_ms: 1000 }
  await send("PUT", "__ds/subscriptions/deaf", deaf)
  await send("PUT", "r/a")
  await send("POST", "r/a", { n: 1 })
  const failed = async () => (await send("GET", "__ds/subscriptions/deaf")).body
  for (let i = 0; i < 100 && (await failed()).generation < 3; i++) await sleep(100)
  let before = await failed()
  for (let i = 0; i < 50 && before.status !== "failed"; i++) { await sleep(20); before = await failed() }
  await kill()
  await start()
  const after = await failed()
  check("a scheduled retry survives kill -9", after.status === "failed" && after.next_attempt_at >= before.next_attempt_at,
    JSON.stringify([before, after]))
  await send("DELETE", "__ds/subscriptions/deaf")

  // Claims across a kill.
  await send("PUT", "wake", [])
  await send("PUT", "__ds/subscriptions/pull", { type: "pull-wake", pattern: "p/*", wake_stream: "wake", lease_ttl_ms: 1500 })
  await send("PUT", "p/a")
  await send("POST", "p/a", { n: 1 })
  const first = (await send("POST", "__ds/subscriptions/pull/claim", { worker: "one" })).body
  const ack = (wake) => send("POST", "__ds/subscriptions/pull/ack",
    { wake_id: wake.wake_id, generation: wake.generation, done: true, acks: wake.streams.map((s) => ({ stream: s.path, offset: s.tail_offset })) },
    { authorization: `Bearer ${wake.token}` })
  await kill()
  await start()
  const busy = await send("POST", "__ds/subscriptions/pull/claim", { worker: "two" })
  check("a claim is held across kill -9", busy.status === 409 && busy.body.error.current_holder === "one", JSON.stringify(busy.body))
  await sleep(1600)
  const second = (await send("POST", "__ds/subscriptions/pull/claim", { worker: "two" })).body
  check("an expired claim goes to the next worker, with a later generation", second.generation > first.generation)
  await kill()
  await start()
  const late = await ack(first)
  check("the worker of the expired claim is fenced after kill -9", late.status === 409 && late.body.error.code === "FENCED")
  const good = await ack(second)
  check("the present one is not", good.status === 200 && good.body.next_wake === false, JSON.stringify(good.body))
  await kill()
  await start()
  const none = await send("POST", "__ds/subscriptions/pull/claim", { worker: "three" })
  check("an acknowledgement survives kill -9", none.status === 409 && none.body.error.code === "NO_PENDING_WORK")
  const list = await send("GET", "__ds/streams")
  check("subscriptions are no streams to a list", !JSON.stringify(list.body).includes("__ds"))
  await kill("SIGTERM")
  check("the server stops gracefully", child.exitCode === 0)
} catch (error) {
  check("nothing unexpected happens", false, String(error.stack))
} finally {
  writing = false
  if (child && child.exitCode === null && child.signalCode === null) child.kill("SIGKILL")
  receiver.close()
  receiver.closeAllConnections()
}
process.exitCode = failures ? 1 : 0
