// The network between nodes, and between each node and the bucket, with links that can be cut: node network.mjs CONTROL FOLDER LINK...
//
// A LINK is NAME:PORT:TARGET: what connects to PORT of this machine is connected to the port TARGET. Links `bucket-N` are the way
// of node N to the bucket. Links `node-N` are the way of all other nodes to node N; which of them has connected is told by the
// process at the other end of the connection, whose number is in FOLDER/pid-M, so that each direction of each pair has its own mode.
//
//   GET http://127.0.0.1:CONTROL/PATH/MODE       PATH is bucket-N, or M-N for what node M sends to node N; `all` for all of them
//
// Modes:
//   open       all bytes pass
//   reset      connections end with RST, new ones too
//   silent     no byte passes in either direction; they come late, when the path is open again, as from a switch that hung
//   deaf       requests pass, and answers do not: what was asked happens, and the one who asked does not learn of it
//   slow       every byte comes 150 ms late
import { createServer } from 'node:http'
import net from 'node:net'
import { readFileSync, readdirSync, readlinkSync } from 'node:fs'

const [control, folder, ...links] = process.argv.slice(2)
const LATE_MS = 150
const modes = new Map(), pairs = new Set()
const modeOf = (path) => modes.get(path) ?? 'open'
// Whether any way to this node is not open, or, without a node, any way to the bucket.
const areCut = (to) => [...modes.keys()].some((path) => (to === undefined ? path.startsWith('bucket-') : path.endsWith(`-${to}`) && !path.startsWith('bucket-')))

// The node whose process has the connection from this port, by the kernel's tables; undefined if it is none.
function nodeAt(port, ours) {
  const hex = (number) => number.toString(16).toUpperCase().padStart(4, '0')
  const local = `0100007F:${hex(port)}`, remote = `0100007F:${hex(ours)}`
  const line = readFileSync('/proc/net/tcp', 'utf8').split('\n').map((line) => line.trim().split(/\s+/)).find((fields) => fields[1] === local && fields[2] === remote)
  if (!line) return undefined
  const socket = `socket:[${line[9]}]`
  for (const name of readdirSync(folder).filter((name) => /^pid-\d+$/.test(name))) {
    try {
      const files = `/proc/${readFileSync(`${folder}/${name}`, 'utf8').trim()}/fd`
      if (readdirSync(files).some((file) => { try { return readlinkSync(`${files}/${file}`) === socket } catch { return false } })) return name.slice(4)
    } catch { /* the process has just ended */ }
  }
  return undefined
}

class Pair {
  // `find`: the path, which is looked for only when it matters, because the kernel's tables are long.
  constructor(to, find, client, target) {
    this.to = to
    this.find = find
    this.client = client
    this.server = net.connect({ port: target, host: '127.0.0.1', allowHalfOpen: true })
    this.isOver = false
    pairs.add(this)
    for (const [from, to, way] of [[this.client, this.server, 'request'], [this.server, this.client, 'answer']]) {
      from.setNoDelay(true)
      from.on('data', (bytes) => this.pass(to, way, bytes))
      // An end waits behind the bytes that have come before it; while the path is silent nothing is read, so neither comes.
      from.on('end', () => this.pass(to, way, null))
      from.on('error', () => this.end())
      from.on('close', () => { if (this.mode !== 'silent') setTimeout(() => this.end(), LATE_MS + 50) })
    }
    if (areCut(to)) this.apply(); else for (const one of [this.client, this.server]) one.resume()
  }

  get path() { return (this.found ??= this.find()) }
  get mode() { return areCut(this.to) ? modeOf(this.path) : 'open' }

  pass(to, way, bytes) {
    const write = () => { if (!to.destroyed) { if (bytes) to.write(bytes); else to.end() } }
    if (this.mode === 'slow') setTimeout(write, LATE_MS); else write()
  }

  apply() {
    const mode = this.mode
    if (mode === 'reset') return this.end(true)
    for (const [from, isHeld] of [[this.client, mode === 'silent'], [this.server, mode === 'silent' || mode === 'deaf']]) {
      if (isHeld) from.pause(); else from.resume()
    }
    if (mode === 'open' && (this.client.destroyed || this.server.destroyed)) setTimeout(() => this.end(), 200)
  }

  end(isReset = false) {
    if (this.isOver) return
    this.isOver = true
    pairs.delete(this)
    for (const one of [this.client, this.server]) if (isReset && !one.connecting && !one.destroyed) one.resetAndDestroy(); else one.destroy()
  }
}

const paths = []
const nodes = links.filter((link) => link.startsWith('node-')).map((link) => link.split(':')[0].slice(5))
for (const link of links) {
  const [name, port, target] = link.split(':')
  const to = name.startsWith('node-') ? name.slice(5) : undefined
  if (to === undefined) paths.push(name); else paths.push(...nodes.filter((from) => from !== to).map((from) => `${from}-${to}`))
  net.createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
    client.on('error', () => {})
    // Once the client has gone the kernel does not know any more whose it was.
    const { remotePort } = client
    const find = () => (to === undefined ? name : `${(remotePort && nodeAt(remotePort, Number(port))) ?? 'other'}-${to}`)
    if (!client.destroyed) new Pair(to, find, client, Number(target))
  }).listen(Number(port), '127.0.0.1', 4096)
}
createServer((request, response) => {
  const [, path, mode] = request.url.split('/')
  if (!['open', 'reset', 'silent', 'deaf', 'slow'].includes(mode) || (path !== 'all' && !paths.includes(path))) {
    response.writeHead(400).end(`there is no path ${path}, or no mode ${mode}\n`)
    return
  }
  const chosen = path === 'all' ? paths : [path]
  const targets = chosen.map((path) => (path.startsWith('bucket-') ? undefined : path.split('-')[1]))
  const changed = [...pairs].filter((pair) => targets.includes(pair.to) && chosen.includes(pair.path))
  for (const path of chosen) if (mode === 'open') modes.delete(path); else modes.set(path, mode)
  for (const pair of changed) pair.apply()
  response.end(`${changed.length}\n`)
}).listen(Number(control), '127.0.0.1')
