// A network between a server and a store: node slow.mjs PORT STORE_PORT MILLISECONDS. Every answer comes so much later.
import net from 'node:net'

const [port, store, ms] = process.argv.slice(2).map(Number)
net.createServer((client) => {
  const upstream = net.connect(store, '127.0.0.1')
  const end = () => { client.destroy(); upstream.destroy() }
  client.on('error', end).on('close', end)
  upstream.on('error', end).on('close', () => setTimeout(end, ms))
  client.setNoDelay(true)
  upstream.setNoDelay(true)
  client.pipe(upstream)
  upstream.on('data', (bytes) => { if (ms > 0) setTimeout(() => client.write(bytes), ms); else client.write(bytes) })
}).listen(port, '127.0.0.1')
