// Clients of several nodes, and what was acknowledged to them: node model.mjs URL,URL,... --until FILE --out FILE --control PORT
//
// Each stream has one writer, an idempotent producer, which asks a random node each time and repeats what fails. Message k of
// stream s is a text that depends on both. While it writes, a reader follows over SSE and another one by long-polls, from random
// nodes, each from the offset that it was told last: they must get every message once, in order, and at the end all of them.
// Beside these, short lives: streams that are closed, deleted, or left to their time to live. At the end every stream has exactly
// its messages, in order, every fork those of its source up to where it was made, every closed stream is closed, and every
// deleted or expired one is gone.
//
// An attempt without an answer may still be under way in a network that holds bytes back. A deletion is believed only if no
// attempt of its stream was left in doubt.
//
//   GET http://127.0.0.1:PORT/measure?without=N    when each of the probed streams has acknowledged an append that was asked for
//                                                  after this request, from any node but N: milliseconds, as JSON
import { existsSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'

const [list, ...rest] = process.argv.slice(2)
const option = (name, otherwise) => { const at = rest.indexOf('--' + name); return at < 0 ? otherwise : rest[at + 1] }
const nodes = list.split(',').map((address) => `http://${address}`)
const STREAMS = Number(option('streams', 12)), PROBES = Number(option('probes', 48)), until = option('until')
const PAUSE_MS = Number(option('pause-ms', 50)), FORK_EVERY = Number(option('fork-every', 50))
const isOver = () => existsSync(until)
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const other = (without) => { for (;;) { const n = Math.floor(Math.random() * nodes.length); if (n !== without) return nodes[n] } }
const problems = []
const problem = (text) => { if (problems.length < 20) problems.push(`${new Date().toISOString().slice(11, 23)} ${text}`) }
const message = (s, k) => `${s}#${k};`
const content = (s, count) => [...Array(count).keys()].map((k) => message(s, k)).join('')
const outages = []
let asked = 0, failed = 0

// Asks random nodes until one answers with something else than 5xx; gives up after two minutes. `attempts` says how many it took.
async function request(path, init = {}, without = undefined) {
  const began = Date.now()
  for (let attempts = 1; ; attempts++) {
    asked++
    let why
    try {
      const answer = await fetch(other(without) + path, { ...init, signal: AbortSignal.timeout(12_000) })
      if (answer.status < 500 && answer.status !== 429) {
        const text = await answer.text()
        if (Date.now() - began > 1000) outages.push(Date.now() - began)
        return { ok: answer.ok, status: answer.status, headers: answer.headers, text, attempts }
      }
      why = `${answer.status} ${(await answer.text()).slice(0, 200)}`
    } catch (error) { why = error.cause?.code ?? error.name }
    failed++
    if (Date.now() - began > 120_000) throw new Error(`${init.method ?? 'GET'} ${path}: ${why}`)
    await sleep(30)
  }
}

const type = { 'content-type': 'text/plain' }
const producer = (id, k) => ({ ...type, 'Producer-Id': id, 'Producer-Epoch': '0', 'Producer-Seq': String(k) })

async function writer(s) {
  const path = `/v1/stream/n/s${s}`, state = states[s]
  while (!isOver()) {
    const k = state.acknowledged
    state.sent = k + 1
    const answer = await request(path, { method: 'POST', headers: producer(`w${s}`, k), body: message(s, k) })
    if (!answer.ok) { problem(`append ${k} to ${s}: ${answer.status} ${answer.text}`); break }
    state.acknowledged++
    const offset = answer.headers.get('stream-next-offset')
    // The answer to a repeated append has the tail of now, which is the same: there is one writer.
    if (state.offsets.length > 0 && offset <= state.offsets.at(-1)) problem(`offset of ${s} goes from ${state.offsets.at(-1)} to ${offset}`)
    state.offsets.push(offset)
    if (k % FORK_EVERY === 20) {
      const fork = `/v1/stream/n/f${s}-${k}`
      const made = await request(fork, { method: 'PUT', headers: { 'Stream-Forked-From': path, 'Stream-Fork-Offset': offset } })
      if (made.ok) state.forks.push([fork, state.acknowledged]); else problem(`fork of ${s}: ${made.status} ${made.text}`)
    }
    // A read that begins after the acknowledgement sees the message.
    if (k % 10 === 5) {
      const read = await request(`${path}?offset=${state.offsets[k - 3]}`)
      const expected = [k - 2, k - 1, k].map((k) => message(s, k)).join('')
      if (!read.ok || read.text !== expected) problem(`${s} at ${k} is read as ${read.status} ${read.text.slice(0, 100)}, not ${expected}`)
    }
    await sleep(PAUSE_MS)
  }
}

// The messages of a stream as a reader gets them, each once and in order.
class Reading {
  constructor(s, kind) { Object.assign(this, { s, kind, next: 0, offset: '-1', sessions: 0, isWrong: false }) }
  take(text, offset) {
    for (const one of text.split(';').filter(Boolean)) {
      if (`${one};` !== message(this.s, this.next) || this.next >= states[this.s].sent) {
        problem(`${this.kind} reader of ${this.s} got ${one} in place of ${message(this.s, this.next)}, ${states[this.s].sent} sent, offset ${this.offset}`)
        this.isWrong = true
        return
      }
      this.next++
    }
    this.offset = offset
  }
  // All that was acknowledged when the writers had ended.
  isDone() { return this.isWrong || (areWritten && this.next >= states[this.s].acknowledged) }
}

async function sse(reading) {
  const answer = await fetch(`${other()}/v1/stream/n/s${reading.s}?offset=${reading.offset}&live=sse`, { signal: AbortSignal.timeout(areWritten ? 3_000 : 9_000) })
  if (!answer.ok) { await answer.text(); return sleep(50) }
  let rest = '', seen = ''
  for await (const part of answer.body) {
    rest += Buffer.from(part).toString()
    for (let end; (end = rest.indexOf('\n\n')) >= 0; rest = rest.slice(end + 2)) {
      const lines = rest.slice(0, end).split('\n')
      const kind = lines.find((line) => line.startsWith('event:'))?.slice(6).trim()
      const data = lines.filter((line) => line.startsWith('data:')).map((line) => line.slice(5)).join('\n')
      if (kind === 'data') seen = data
      if (kind === 'control') { reading.take(seen, JSON.parse(data).streamNextOffset); seen = '' }
    }
    if (reading.isDone()) return
  }
}

async function poll(reading) {
  const answer = await fetch(`${other()}/v1/stream/n/s${reading.s}?offset=${reading.offset}&live=long-poll`, { signal: AbortSignal.timeout(6_000) })
  const text = await answer.text()
  if (answer.ok) reading.take(text, answer.headers.get('stream-next-offset')); else await sleep(50)
}

async function follow(reading) {
  while (!reading.isDone()) {
    reading.sessions++
    try { await (reading.kind === 'SSE' ? sse : poll)(reading) } catch { await sleep(50) }
  }
}

// Streams with an end: closed, closed and deleted, deleted and made again, left to expire.
const lives = []
async function live(n) {
  const path = `/v1/stream/n/life${n}`, kind = ['closed', 'deleted', 'again', 'expires', 'stays'][n % 5]
  let isSure = true
  const ask = async (init) => {
    const answer = await request(path, init)
    isSure &&= answer.attempts === 1
    return answer
  }
  const expect = (what, answer, ...statuses) => { if (!statuses.includes(answer.status)) problem(`${what} ${path} (${kind}): ${answer.status} ${answer.text.slice(0, 200)}`) }
  const ttl = { expires: { 'Stream-TTL': '4' }, stays: { 'Stream-TTL': '7200' } }[kind] ?? {}
  expect('PUT', await ask({ method: 'PUT', headers: { ...type, ...ttl } }), 200, 201)
  // A stream with a short life may have ended before a repeated append.
  const isShort = kind === 'expires'
  for (let k = 0; k < 3; k++) expect('POST', await ask({ method: 'POST', headers: producer('life', k), body: message(`life${n}`, k) }), 200, 204, ...(isShort ? [404] : []))
  if (kind === 'closed' || kind === 'deleted') {
    const headers = { ...producer('life', 3), 'Stream-Closed': 'true' }
    expect('closing', await ask({ method: 'POST', headers, body: message(`life${n}`, 3) }), 200, 204)
  }
  if (kind === 'deleted' || kind === 'again') {
    const wasSure = isSure
    const answer = await ask({ method: 'DELETE' })
    expect('DELETE', answer, 204, ...(answer.attempts > 1 || !wasSure ? [404] : []))
  }
  if (kind === 'again' && isSure) {
    // One that is repeated after an answer that was lost finds what it has made.
    const made = await ask({ method: 'PUT', headers: type })
    expect(`PUT again, ${made.attempts} times`, made, 201, ...(made.attempts > 1 ? [200] : []))
    expect('POST again', await ask({ method: 'POST', headers: producer('life', 0), body: 'again;' }), 200, 204)
  }
  lives.push({ path, kind, isSure, n, ended: Date.now() })
}

async function livesOf(first, step) {
  for (let n = first; !isOver(); n += step) { await live(n); await sleep(PAUSE_MS * 20) }
}

async function whole(path) {
  let text = '', offset = '-1'
  for (;;) {
    const answer = await request(`${path}?offset=${offset}`)
    if (!answer.ok) return { status: answer.status, text: `status ${answer.status}` }
    text += answer.text
    offset = answer.headers.get('stream-next-offset')
    if (answer.headers.get('stream-up-to-date') === 'true') return { status: 200, text, isClosed: answer.headers.get('stream-closed') === 'true' }
  }
}

async function checkLife({ path, kind, isSure, n }) {
  const { status, text, isClosed } = await whole(path)
  const found = `${path} (${kind}${isSure ? '' : ', in doubt'}) has status ${status}, closed ${isClosed}: ${text.slice(0, 80)}`
  if (kind === 'closed') {
    if (text !== content(`life${n}`, 4) || !isClosed) problem(found)
    const late = await request(path, { method: 'POST', headers: type, body: 'late;' })
    if (late.status !== 409) problem(`an append to ${path}, which is closed, is answered ${late.status}`)
  } else if (kind === 'stays') {
    if (text !== content(`life${n}`, 3)) problem(found)
  } else if (!isSure) {
    return
  } else if (kind === 'again') {
    if (text !== 'again;') problem(found)
  } else if (status !== 404) problem(found)
}

// ---- time without service

const probed = [...Array(PROBES).keys()].map(() => [])
let probe = 0
async function measure(without) {
  const began = Date.now()
  const times = await Promise.all(probed.map(async (acknowledged, p) => {
    const id = `${probe++};`
    const answer = await request(`/v1/stream/n/p${p}`, { method: 'POST', headers: type, body: id }, without)
    if (answer.ok) acknowledged.push(id); else problem(`probe of p${p}: ${answer.status} ${answer.text}`)
    return Date.now() - began
  }))
  times.sort((a, b) => a - b)
  return { worst_ms: times.at(-1), median_ms: times[times.length >> 1], times }
}
function serveMeasurements() {
  createServer((asking, answer) => {
    const { pathname, searchParams } = new URL(asking.url, 'http://localhost')
    if (pathname !== '/measure') return answer.writeHead(404).end()
    const without = searchParams.get('without')
    measure(without ? Number(without) : undefined).then(
      (found) => answer.end(JSON.stringify(found)),
      (error) => { problem(`measuring: ${error.message}`); answer.end('{}') })
  }).listen(Number(option('control', 0)), '127.0.0.1').unref()
}

// ---- the course of it

const all = [...Array(STREAMS).keys()]
const states = all.map(() => ({ acknowledged: 0, sent: 0, offsets: [], forks: [] }))
let areWritten = false
try {
  await Promise.all([...all.map((s) => `s${s}`), ...probed.map((_, p) => `p${p}`)].map((name) => request(`/v1/stream/n/${name}`, { method: 'PUT', headers: type })))
  serveMeasurements()
  const readings = all.flatMap((s) => [new Reading(s, 'SSE'), new Reading(s, 'long-poll')])
  const readers = readings.map(follow)
  await Promise.all([...all.map(writer), livesOf(0, 2), livesOf(1, 2)])
  areWritten = true
  await Promise.race([Promise.all(readers), sleep(60_000)])
  for (const { s, kind, next, offset, isWrong } of readings) if (!isWrong && next !== states[s].acknowledged) problem(`the ${kind} reader of ${s} got ${next} of ${states[s].acknowledged} messages, and stands at ${offset}`)
  for (const s of all) {
    const { acknowledged, offsets, forks } = states[s], expected = content(s, acknowledged)
    const { text } = await whole(`/v1/stream/n/s${s}`)
    if (text !== expected) problem(`${s} has ${text.length} bytes, and ${expected.length} were acknowledged`)
    for (let part = 0; part < 10; part++) {
      const at = Math.floor((offsets.length * part) / 10)
      const half = await request(`/v1/stream/n/s${s}?offset=${offsets[at]}`)
      if (!half.ok || !expected.slice(content(s, at + 1).length).startsWith(half.text)) problem(`offset ${offsets[at]} of ${s} names another place`)
    }
    for (const [fork, count] of forks) {
      const { text } = await whole(fork)
      if (text !== content(s, count)) problem(`${fork} has ${text.length} bytes, not ${content(s, count).length}: ${text.slice(0, 80)}`)
    }
  }
  for (const [p, acknowledged] of probed.entries()) {
    const found = new Set((await whole(`/v1/stream/n/p${p}`)).text.split(';').map((id) => `${id};`))
    for (const id of acknowledged) if (!found.has(id)) problem(`p${p} has not ${id}, which was acknowledged`)
  }
  const youngest = Math.max(0, ...lives.filter(({ kind }) => kind === 'expires').map(({ ended }) => ended))
  await sleep(Math.max(0, youngest + 8_000 - Date.now()))
  for (const life of lives) await checkLife(life)
  const listed = []
  for (let after; ;) {
    const page = JSON.parse((await request(`/v1/stream/__ds/streams?prefix=n/s&limit=1000${after ? `&after=${encodeURIComponent(after)}` : ''}`)).text)
    listed.push(...page.streams)
    if (!(after = page.next)) break
  }
  if (listed.length !== STREAMS) problem(`the list has ${listed.length} streams of ${STREAMS}`)
  outages.sort((a, b) => a - b)
  const pick = (part) => outages[Math.min(outages.length - 1, Math.floor(outages.length * part))] ?? 0
  const sum = (of) => states.reduce((sum, state) => sum + of(state), 0)
  const result = {
    acknowledged: sum((state) => state.acknowledged), forks: sum((state) => state.forks.length),
    lives: lives.length, in_doubt: lives.filter(({ isSure }) => !isSure).length,
    sessions: readings.reduce((n, { sessions }) => n + sessions, 0), read: readings.reduce((n, { next }) => n + next, 0),
    asked, failed, waits: outages.length, wait_p50_ms: pick(0.5), wait_p99_ms: pick(0.99), problems,
  }
  if (option('out')) writeFileSync(option('out'), JSON.stringify(result))
  console.log(JSON.stringify(result))
} catch (error) {
  problem(error.message)
  console.log(JSON.stringify({ problems }))
}
process.exit(problems.length > 0 ? 1 : 0)
