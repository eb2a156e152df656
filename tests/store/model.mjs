// Appends that can be told apart, and what was acknowledged of them: node model.mjs COMMAND MODEL URL ...
//
//   append MODEL URL --streams N --megabytes M      appends until each of N streams has so much more
//   append MODEL URL --streams N --until FILE       appends until the file exists, repeating what fails
//   ... --durability LEVEL                          of the streams that it makes
//   verify MODEL URL [--lossy]                      reads everything; --lossy: a prefix is enough, whose length is printed
//
// Message k of stream s is a text of 10,000 bytes that depends on both. MODEL has, for each stream, how many messages were
// acknowledged, how many may be there, and the offset behind each acknowledged one.
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync, renameSync } from 'node:fs'

const [command, path, url, ...rest] = process.argv.slice(2)
const option = (name, otherwise) => { const at = rest.indexOf('--' + name); return at < 0 ? otherwise : rest[at + 1] }
const MESSAGE = 10_000, GROUP = 20
const model = existsSync(path) ? JSON.parse(readFileSync(path)) : {}
const save = () => { writeFileSync(path + '.tmp', JSON.stringify(model)); renameSync(path + '.tmp', path) }
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))

// Does not compress, so that sizes are what they seem.
const message = (stream, k) => {
  let text = `${stream}#${k}:`
  for (let n = 0; text.length < MESSAGE; n++) text += createHash('sha512').update(`${stream}/${k}/${n}`).digest('base64')
  return text.slice(0, MESSAGE - 1) + '\n'
}

// Repeats until it is answered; gives up after a minute.
async function request(target, init) {
  const until = Date.now() + 60_000
  for (;;) {
    let why
    try {
      const answer = await fetch(target, init)
      if (answer.status < 500 && answer.status !== 429) return answer
      why = `${answer.status} ${await answer.text()}`
    } catch (error) { why = error.cause?.code ?? error.message }
    if (Date.now() > until) throw new Error(`${init?.method ?? 'GET'} ${target}: ${why}`)
    await sleep(50)
  }
}

const type = { 'content-type': 'application/octet-stream' }

async function append(name, limit, isDone) {
  const known = (model[name] ??= { acknowledged: 0, sent: 0, offsets: [] })
  const target = `${url}/v1/stream/${name}`
  const level = option('durability')
  const headers = level ? { ...type, 'Stream-Durability': level } : type
  if (known.acknowledged === 0) await request(target, { method: 'PUT', headers })
  while (!isDone() && known.acknowledged < limit) {
    const first = known.acknowledged, count = Math.min(GROUP, limit - first)
    known.sent = Math.max(known.sent, first + count)
    const body = Array.from({ length: count }, (_, i) => message(name, first + i)).join('')
    const headers = { ...type, 'Producer-Id': 'model', 'Producer-Epoch': String(known.epoch ?? 0), 'Producer-Seq': String(known.seq ?? 0) }
    const answer = await request(target, { method: 'POST', headers, body })
    if (!answer.ok) throw new Error(`appending to ${name}: ${answer.status} ${await answer.text()}`)
    known.seq = (known.seq ?? 0) + 1
    known.acknowledged += count
    known.offsets.push([known.acknowledged, answer.headers.get('stream-next-offset')])
  }
}

async function read(name, offset) {
  const pieces = []
  for (;;) {
    const answer = await request(`${url}/v1/stream/${name}?offset=${offset}`)
    if (!answer.ok) return { status: answer.status }
    pieces.push(Buffer.from(await answer.arrayBuffer()))
    offset = answer.headers.get('stream-next-offset')
    if (answer.headers.get('stream-up-to-date') === 'true') return { bytes: Buffer.concat(pieces), offset }
  }
}

// Why the stream is not what the model says.
async function verify(name, isLossy) {
  const known = model[name]
  const { bytes, status } = await read(name, -1)
  if (!bytes) return isLossy && status === 404 ? { messages: 0 } : { problem: `${name} answers ${status}` }
  const messages = bytes.length / MESSAGE
  if (!Number.isInteger(messages)) return { problem: `${name} has ${bytes.length} bytes: a part of a message` }
  if (messages > known.sent) return { problem: `${name} has ${messages} messages, and ${known.sent} were sent` }
  if (!isLossy && messages < known.acknowledged) return { problem: `${name} has ${messages} messages of ${known.acknowledged}` }
  for (let k = 0; k < messages; k++) {
    if (bytes.toString('latin1', k * MESSAGE, (k + 1) * MESSAGE) !== message(name, k)) return { problem: `${name}: message ${k} is another` }
  }
  // An offset that was given out names the same place, or none any more.
  for (const [count, offset] of [known.offsets[known.offsets.length >> 1], known.offsets.at(-1)].filter(Boolean)) {
    const after = await read(name, offset)
    if (after.bytes ? after.bytes.compare(bytes.subarray(count * MESSAGE)) !== 0 : !isLossy) {
      return { problem: `${name} answers offset ${offset} with ${after.status ?? 'other bytes'}` }
    }
  }
  return { messages }
}

const names = Array.from({ length: Number(option('streams', 4)) }, (_, n) => `model/s${n}`)
if (command === 'append') {
  const file = option('until'), more = Math.ceil((Number(option('megabytes', 0)) * 1e6) / MESSAGE)
  const isDone = () => Boolean(file) && existsSync(file)
  try {
    await Promise.all(names.map((name) => append(name, file ? Infinity : (model[name]?.acknowledged ?? 0) + more, isDone)))
  } finally { save() }
  console.log(Object.values(model).reduce((n, known) => n + known.acknowledged, 0))
} else {
  const isLossy = rest.includes('--lossy')
  let total = 0
  for (const name of Object.keys(model)) {
    const { problem, messages } = await verify(name, isLossy)
    if (problem) { console.error(problem); process.exit(1) }
    // From here on this is the history, with an own epoch of the producer, whose state was set back, too.
    if (isLossy) model[name] = { acknowledged: messages, sent: messages, offsets: [], epoch: (model[name].epoch ?? 0) + 1 }
    total += messages
  }
  if (isLossy) save()
  console.log(total)
}
