// A proxy to Postgres that can be held, slowed or closed, like a network in production.

import { connect, createServer } from "node:net"

export class Proxy {
  /** In front of the Postgres at `url`; `this.url` is the same database through it. */
  static async start(url) {
    const proxy = new Proxy()
    const target = new URL(url)
    const [port, host] = [Number(target.port), target.hostname]
    proxy.links = new Set()
    proxy.refusing = false
    /** Called with each message of the database: true holds it and all that follows on the connection. */
    proxy.holds = () => false
    proxy.server = createServer((client) => proxy.link(client, port, host))
    await new Promise((resolve) => proxy.server.listen(0, "127.0.0.1", resolve))
    target.port = proxy.server.address().port
    // Encrypted messages could not be parsed.
    target.searchParams.set("sslmode", "disable")
    proxy.url = target.href
    return proxy
  }

  link(client, port, host) {
    if (this.refusing) return client.destroy()
    const database = connect(port, host)
    const link = { client, database, held: undefined }
    this.links.add(link)
    const end = () => {
      client.destroy()
      database.destroy()
      this.links.delete(link)
    }
    for (const side of [client, database]) side.on("error", end).on("close", end).setNoDelay(true)
    client.on("data", (bytes) => database.write(bytes))
    let rest = Buffer.alloc(0)
    database.on("data", (bytes) => {
      // Whole messages: a byte for the kind and a length.
      rest = Buffer.concat([rest, bytes])
      while (rest.length >= 5 && rest.length > rest.readUInt32BE(1)) {
        const message = rest.subarray(0, rest.readUInt32BE(1) + 1)
        rest = rest.subarray(message.length)
        this.pass(link, message)
      }
    })
  }

  /** A message that is held holds those behind it. */
  pass(link, message) {
    if (!link.held && this.holds(message.toString("latin1"))) link.held = []
    if (link.held) link.held.push(message)
    else link.client.write(message)
  }

  /** How many connections are held. */
  get held() {
    return [...this.links].filter((link) => link.held).length
  }

  /** Releases held messages, up to the next ones to hold. */
  release(holds = () => false) {
    this.holds = holds
    for (const link of this.links) {
      const held = link.held ?? []
      link.held = undefined
      for (const message of held) this.pass(link, message)
    }
  }

  /** Ends every connection, and takes no other until `open`. */
  close() {
    this.refusing = true
    for (const { client, database } of this.links) {
      client.destroy()
      database.destroy()
    }
    this.links.clear()
  }

  open() {
    this.refusing = false
  }

  async stop() {
    this.close()
    await new Promise((resolve) => this.server.close(resolve))
  }
}
