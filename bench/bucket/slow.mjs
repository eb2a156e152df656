// A network between a server and a store: node slow.mjs PORT STORE_PORT MILLISECONDS [COUNTS_PORT]. Every answer comes so much later.
//
// Requests are counted as the store gets them, by method: a client of S3 sends one request at a time on a connection, so that a piece
// of bytes that begins with a method begins a request. http://127.0.0.1:COUNTS_PORT/ answers with the counts as JSON.
import { createServer } from 'node:http'
import net from 'node:net'

const [port, store, ms, countsPort] = process.argv.slice(2).map(Number)
const counts = { PUT: 0, GET: 0, HEAD: 0, POST: 0, DELETE: 0, bytes: 0 }
net.createServer((client) => {
  const upstream = net.connect(store, '127.0.0.1')
  const end = () => { client.destroy(); upstream.destroy() }
  client.on('error', end).on('close', end)
  upstream.on('error', end).on('close', () => setTimeout(end, ms))
  client.setNoDelay(true)
  upstream.setNoDelay(true)
  client.on('data', (bytes) => {
    const method = bytes.toString('latin1', 0, 8).split(' /', 1)[0]
    if (Object.hasOwn(counts, method)) counts[method]++
    counts.bytes += bytes.length
  })
  client.pipe(upstream)
  upstream.on('data', (bytes) => { if (ms > 0) setTimeout(() => client.write(bytes), ms); else client.write(bytes) })
}).listen(port, '127.0.0.1')
if (countsPort) createServer((_, answer) => answer.end(JSON.stringify(counts))).listen(countsPort, '127.0.0.1')
