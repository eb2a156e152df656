// Writers, readers and forks over several nodes, and what was acknowledged: node model.mjs URL,URL,... --until FILE --out FILE
//
// Each stream has one writer, an idempotent producer, which asks a random node each time and repeats what fails. Message k of
// stream s is a text that depends on both. While it writes, readers follow over SSE and by reads from random nodes: what they
// see must be a prefix of what was sent, and no acknowledged message may be missing once it was seen. At the end every stream
// has exactly its messages, in order, and every fork those of its source up to where it was made.
import { existsSync, writeFileSync } from 'node:fs'

const [list, ...rest] = process.argv.slice(2)
const option = (name, otherwise) => { const at = rest.indexOf('--' + name); return at < 0 ? otherwise : rest[at + 1] }
const nodes = list.split(',').map((address) => `http://${address}`)
const STREAMS = Number(option('streams', 12)), until = option('until')
const isOver = () => existsSync(until)
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const any = () => nodes[Math.floor(Math.random() * nodes.length)]
const problems = []
const problem = (text) => { if (problems.length < 20) problems.push(text) }
const message = (s, k) => `${s}#${k};`
const outages = []
let asked = 0, failed = 0

// Asks random nodes until one answers with something else than 5xx; gives up after a minute.
async function request(path, init = {}) {
  const began = Date.now()
  for (;;) {
    asked++
    let why
    try {
      const answer = await fetch(any() + path, { ...init, signal: AbortSignal.timeout(15_000) })
      if (answer.status < 500 && answer.status !== 429) {
        if (Date.now() - began > 1000) outages.push(Date.now() - began)
        return answer
      }
      why = `${answer.status} ${(await answer.text()).slice(0, 200)}`
    } catch (error) { why = error.cause?.code ?? error.name }
    failed++
    if (Date.now() - began > 60_000) throw new Error(`${init.method ?? 'GET'} ${path}: ${why}`)
    await sleep(30)
  }
}

const type = { 'content-type': 'text/plain' }

async function writer(s) {
  const path = `/v1/stream/n/s${s}`
  await request(path, { method: 'PUT', headers: type })
  const state = { acknowledged: 0, offsets: [], forks: [] }
  while (!isOver()) {
    const k = state.acknowledged
    const headers = { ...type, 'Producer-Id': `w${s}`, 'Producer-Epoch': '0', 'Producer-Seq': String(k) }
    const answer = await request(path, { method: 'POST', headers, body: message(s, k) })
    if (!answer.ok) { problem(`append ${k} to ${s}: ${answer.status} ${await answer.text()}`); break }
    state.acknowledged++
    const offset = answer.headers.get('stream-next-offset')
    // The answer to a repeated append has the tail of now, which is the same: there is one writer.
    if (state.offsets.length > 0 && offset <= state.offsets.at(-1)) problem(`offset of ${s} goes from ${state.offsets.at(-1)} to ${offset}`)
    state.offsets.push(offset)
    if (k % 50 === 20) {
      const fork = `/v1/stream/n/f${s}-${k}`
      const made = await request(fork, { method: 'PUT', headers: { 'Stream-Forked-From': path, 'Stream-Fork-Offset': offset } })
      if (made.ok) state.forks.push([fork, state.acknowledged]); else problem(`fork of ${s}: ${made.status} ${await made.text()}`)
    }
    // A read that begins after the acknowledgement sees the message.
    if (k % 10 === 5) {
      const read = await request(`${path}?offset=${state.offsets[Math.max(0, k - 3)]}`)
      const text = await read.text(), expected = [...Array(Math.min(3, k)).keys()].map((n) => message(s, k - Math.min(3, k) + 1 + n)).join('')
      if (!read.ok || text !== expected) problem(`${s} at ${k} is read as ${read.status} ${text.slice(0, 100)}, not ${expected}`)
    }
  }
  return state
}

// Follows a stream over SSE from random nodes, and checks that what comes is what was sent, in order, without gaps.
async function reader(s) {
  let seen = '', offset = '-1', next = 0
  while (!isOver()) {
    try {
      const answer = await fetch(`${any()}/v1/stream/n/s${s}?offset=${offset}&live=sse`, { signal: AbortSignal.timeout(20_000) })
      if (!answer.ok) { await answer.text(); await sleep(50); continue }
      let rest = ''
      for await (const part of answer.body) {
        rest += Buffer.from(part).toString()
        for (let end; (end = rest.indexOf('\n\n')) >= 0; rest = rest.slice(end + 2)) {
          const lines = rest.slice(0, end).split('\n')
          const kind = lines.find((line) => line.startsWith('event:'))?.slice(6).trim()
          const data = lines.filter((line) => line.startsWith('data:')).map((line) => line.slice(5)).join('\n')
          if (kind === 'data') seen = data
          if (kind === 'control') {
            const control = JSON.parse(data)
            for (const one of seen.split(';').filter(Boolean)) {
              if (`${one};` !== message(s, next)) { problem(`reader of ${s} got ${one} in place of ${message(s, next)}`); return }
              next++
            }
            seen = ''
            offset = control.streamNextOffset
          }
        }
        if (isOver()) return
      }
    } catch { await sleep(50) }
  }
}

async function whole(path) {
  let text = '', offset = '-1'
  for (;;) {
    const answer = await request(`${path}?offset=${offset}`)
    if (!answer.ok) return `status ${answer.status}`
    text += await answer.text()
    offset = answer.headers.get('stream-next-offset')
    if (answer.headers.get('stream-up-to-date') === 'true') return text
  }
}

const all = [...Array(STREAMS).keys()]
for (const s of all) await request(`/v1/stream/n/s${s}`, { method: 'PUT', headers: type })
const readers = all.map(reader)
const states = await Promise.all(all.map(writer))
await Promise.all(readers.map((one) => Promise.race([one, sleep(25_000)])))
const content = (s, count) => [...Array(count).keys()].map((k) => message(s, k)).join('')
for (const s of all) {
  const { acknowledged, offsets, forks } = states[s]
  const text = await whole(`/v1/stream/n/s${s}`)
  if (text !== content(s, acknowledged)) problem(`${s} has ${text.length} bytes, and ${content(s, acknowledged).length} were acknowledged`)
  const at = Math.floor(offsets.length / 2)
  const half = await request(`/v1/stream/n/s${s}?offset=${offsets[at]}`)
  if (!half.ok || !content(s, acknowledged).slice(content(s, at + 1).length).startsWith(await half.text())) problem(`offset ${offsets[at]} of ${s} names another place`)
  for (const [fork, count] of forks) {
    const text = await whole(fork)
    if (text !== content(s, count)) problem(`${fork} has ${text.length} bytes, not ${content(s, count).length}: ${text.slice(0, 80)}`)
  }
}
const listed = await (await request('/v1/stream/__ds/streams?prefix=n/s&limit=1000')).json()
if (listed.streams.length !== STREAMS) problem(`the list has ${listed.streams.length} streams of ${STREAMS}`)
outages.sort((a, b) => a - b)
const pick = (part) => outages[Math.min(outages.length - 1, Math.floor(outages.length * part))] ?? 0
const acknowledged = states.reduce((sum, state) => sum + state.acknowledged, 0), forks = states.reduce((sum, state) => sum + state.forks.length, 0)
const result = { acknowledged, forks, asked, failed, waits: outages.length, wait_p50_ms: pick(0.5), wait_p99_ms: pick(0.99), problems }
if (option('out')) writeFileSync(option('out'), JSON.stringify(result))
console.log(JSON.stringify(result))
process.exit(problems.length > 0 ? 1 : 0)
