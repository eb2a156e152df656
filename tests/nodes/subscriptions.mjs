// Subscriptions over several nodes, and what was acknowledged: node subscriptions.mjs URL,URL,... --until FILE --out FILE
//
// Writers append to streams that a pattern names; streams come and go. Each message must reach a worker of each of two
// subscriptions: one is woken by a webhook, the other one claims its wakes (pull-wake). Workers ask random nodes, read from the
// acknowledged position to the end, and acknowledge. Generations only grow, and at the end nothing acknowledged is missing.
import { existsSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'

const [list, ...rest] = process.argv.slice(2)
const option = (name, otherwise) => { const at = rest.indexOf('--' + name); return at < 0 ? otherwise : rest[at + 1] }
const nodes = list.split(',').map((address) => `http://${address}`)
const STREAMS = Number(option('streams', 6)), until = option('until'), WITHIN = Number(option('within', 60)) * 1000
const isOver = () => existsSync(until)
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const any = () => nodes[Math.floor(Math.random() * nodes.length)]
const problems = []
const problem = (text) => { if (problems.length < 20) problems.push(text) }

// Asks random nodes until one answers with something else than 5xx; gives up after a minute.
async function request(path, init = {}) {
  const began = Date.now()
  for (;;) {
    let why
    try {
      const answer = await fetch(any() + path, { ...init, signal: AbortSignal.timeout(15_000) })
      if (answer.status < 500 && answer.status !== 429) return answer
      why = `${answer.status} ${(await answer.text()).slice(0, 200)}`
    } catch (error) { why = error.cause?.code ?? error.name }
    if (Date.now() - began > 60_000) throw new Error(`${init.method ?? 'GET'} ${path}: ${why}`)
    await sleep(30)
  }
}
const json = { 'content-type': 'application/json' }
const text = { 'content-type': 'text/plain' }
const control = (rest, method, body, token) =>
  request(`/v1/stream/__ds/subscriptions/${rest}`, { method, headers: { ...json, ...(token && { authorization: `Bearer ${token}` }) }, body: body && JSON.stringify(body) })

// ---- what was acknowledged, and what each subscription's workers have seen

const acknowledged = new Set(), removed = new Set()
const seen = { hook: new Set(), pull: new Set() }
const last = { hook: 0, pull: 0 }
// The wake of each generation: no other one may have its number.
const wakeOf = { hook: new Map(), pull: new Map() }
let wakes = 0, fenced = 0

async function writer(s) {
  let n = 0
  for (let life = 0; !isOver(); life++) {
    const name = `subs/s${s}-${life}`, path = `/v1/stream/${name}`
    await request(path, { method: 'PUT', headers: text })
    for (let k = 0; k < 40 && !isOver(); k++, n++) {
      const headers = { ...text, 'Producer-Id': `w${s}`, 'Producer-Epoch': '0', 'Producer-Seq': String(k) }
      const answer = await request(path, { method: 'POST', headers, body: `${name}#${k};` })
      if (!answer.ok) { problem(`append ${k} to ${name}: ${answer.status} ${await answer.text()}`); return }
      acknowledged.add(`${name}#${k}`)
      await sleep(Math.random() * 40)
    }
    // Some streams go while they may have news: what was in them is nobody's any more.
    if (life % 3 === 2) {
      await request(path, { method: 'DELETE' })
      removed.add(name)
    }
  }
}

// Reads a stream from one offset to another.
async function read(path, from, to, into) {
  for (let offset = from; offset !== to;) {
    const answer = await request(`/v1/stream/${path}?offset=${offset}`)
    if (!answer.ok) return false
    for (const one of (await answer.text()).split(';').filter(Boolean)) into.add(one)
    const next = answer.headers.get('stream-next-offset')
    if (next === offset || answer.headers.get('stream-up-to-date') === 'true') return next
    offset = next
  }
  return to
}

// Does the work of one wake, and returns the acknowledgements.
async function work(kind, wake) {
  wakes++
  if (wake.generation <= last[kind] && kind === 'pull') problem(`${kind}: generation ${wake.generation} after ${last[kind]}`)
  if ((wakeOf[kind].get(wake.generation) ?? wake.wake_id) !== wake.wake_id) problem(`${kind}: two wakes have generation ${wake.generation}`)
  wakeOf[kind].set(wake.generation, wake.wake_id)
  last[kind] = Math.max(last[kind], wake.generation)
  const acks = []
  for (const { path, acked_offset, tail_offset } of wake.streams) {
    const end = await read(path, acked_offset, tail_offset, seen[kind])
    if (end) acks.push({ stream: path, offset: end })
  }
  return { wake_id: wake.wake_id, generation: wake.generation, acks, done: true }
}

async function settle(kind, id, action, wake) {
  const answer = await control(`${id}/${action}`, 'POST', await work(kind, wake), wake.token ?? wake.callback_token)
  const body = await answer.text()
  // A worker whose acknowledgement was lost on its way hears that the wake is over; another wake comes if work is left.
  if (answer.status === 409 && body.includes('FENCED')) fenced++
  // A stream that was deleted meanwhile cannot be acknowledged: the others wait for the end of the lease.
  else if (!answer.ok && !(answer.status === 409 && body.includes('INVALID_OFFSET'))) problem(`${action}: ${answer.status} ${body}`)
}

const hooks = createServer((incoming, response) => {
  let body = ''
  incoming.on('data', (part) => { body += part })
  incoming.on('end', () => {
    response.writeHead(200, json).end('{}')
    settle('hook', 'sub-hook', 'callback', JSON.parse(body)).catch((error) => problem(`webhook: ${error.message}`))
  })
})
await new Promise((done) => hooks.listen(0, '127.0.0.1', done))

async function puller(stop) {
  while (!stop.now) {
    const answer = await control('sub-pull/claim', 'POST', { worker: 'w' })
    if (answer.ok) await settle('pull', 'sub-pull', 'ack', await answer.json())
    else {
      const body = await answer.text()
      if (answer.status !== 409) problem(`claim: ${answer.status} ${body}`)
      await sleep(100)
    }
  }
}

await request('/v1/stream/wakes/pull', { method: 'PUT', headers: json })
const lease_ttl_ms = 3_000
for (const [id, body] of [
  ['sub-pull', { type: 'pull-wake', pattern: 'subs/*', wake_stream: 'wakes/pull', lease_ttl_ms }],
  ['sub-hook', { type: 'webhook', pattern: 'subs/*', webhook: { url: `http://127.0.0.1:${hooks.address().port}/` }, lease_ttl_ms }],
]) {
  const made = await control(id, 'PUT', body)
  if (!made.ok) problem(`${id}: ${made.status} ${await made.text()}`)
}
const stop = { now: false }
const pulling = puller(stop)
await Promise.all([...Array(STREAMS).keys()].map(writer))
const missing = (kind) => [...acknowledged].filter((one) => !removed.has(one.split('#')[0]) && !seen[kind].has(one))
const ended = Date.now()
while ((missing('hook').length > 0 || missing('pull').length > 0) && Date.now() - ended < WITHIN) await sleep(200)
const settled = Date.now() - ended
for (const kind of ['hook', 'pull']) {
  const left = missing(kind)
  if (left.length > 0) problem(`${kind}: ${left.length} of ${acknowledged.size} messages reached no worker, such as ${left.slice(0, 3)}`)
}
// What was deleted is linked no longer, and then there is no work left.
const links = async (id) => (await (await control(id, 'GET')).json()).streams.map((stream) => stream.path)
const stale = async () => [...await links('sub-pull'), ...await links('sub-hook')].filter((path) => removed.has(path))
while ((await stale()).length > 0 && Date.now() - ended < WITHIN) await sleep(200)
if ((await stale()).length > 0) problem(`deleted streams are still linked: ${(await stale()).slice(0, 3)}`)
stop.now = true
await pulling
// What was read and not acknowledged, because a stream of the same wake was deleted, comes once more.
let idle
for (const began = Date.now(); Date.now() - began < 10_000; await sleep(200)) {
  idle = await control('sub-pull/claim', 'POST', { worker: 'last' })
  if (idle.ok) await settle('pull', 'sub-pull', 'ack', await idle.json())
  else if (idle.status === 409 && (await idle.text()).includes('NO_PENDING_WORK')) { idle = null; break }
}
if (idle) problem(`a claim after all work was done is answered ${idle.status}`)
// Every wake that was claimed was told to the wake stream.
const told = await request('/v1/stream/wakes/pull?offset=-1')
const events = JSON.parse(await told.text())
if (!events.some((event) => event.type === 'wake' && event.subscription_id === 'sub-pull')) problem('the wake stream has no event of a wake')
for (const id of ['sub-pull', 'sub-hook']) {
  const answer = await control(id, 'DELETE')
  if (answer.status !== 204) problem(`delete of ${id}: ${answer.status}`)
}
const result = { acknowledged: acknowledged.size, wakes, fenced, settled_ms: settled, events: events.length, problems }
if (option('out')) writeFileSync(option('out'), JSON.stringify(result))
console.log(JSON.stringify(result))
process.exit(problems.length > 0 ? 1 : 0)
