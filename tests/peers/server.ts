// Stands in for the test server of other clients' suites: the binary under test, behind a proxy that makes the faults that they ask for.
import { spawn, type ChildProcess } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import { type AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

interface Fault {
  path: string
  count?: number
  method?: string
  probability?: number
  delayMs?: number
  jitterMs?: number
  dropConnection?: boolean
  status?: number
  retryAfter?: number
  truncateBodyBytes?: number
  corruptBody?: boolean
  injectSseEvent?: { eventType: string; data: string }
}

const ROOT = "/v1/stream"

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms))

async function body(from: IncomingMessage): Promise<Buffer> {
  const parts: Array<Buffer> = []
  for await (const part of from) parts.push(part as Buffer)
  return Buffer.concat(parts)
}

export class DurableStreamTestServer {
  url = ""
  private child?: ChildProcess
  private proxy?: Server
  private target = 0
  private faults: Array<Fault> = []
  private readonly folder = mkdtempSync(join(tmpdir(), "thalweg-peers-"))

  constructor(private readonly options: { port?: number; longPollTimeout?: number } = {}) {}

  async start(): Promise<string> {
    const ready = join(this.folder, "ready")
    const flags = ["serve", "--listen", "127.0.0.1:0", "--data", join(this.folder, "data"), "--ready-file", ready, "--log", "error"]
    const patience = this.options.longPollTimeout
    this.child = spawn(process.env.THALWEG_BIN!, [...flags, ...(patience ? ["--long-poll-timeout", `${patience}ms`] : [])], { stdio: ["ignore", "ignore", "inherit"] })
    while (!existsSync(ready)) {
      if (this.child.exitCode !== null) throw new Error(`the server ended with ${this.child.exitCode}`)
      await pause(10)
    }
    this.target = Number(readFileSync(ready, "utf8").trim().split(":")[1])
    this.proxy = createServer((asked, answer) => void this.answer(asked, answer).catch(() => answer.destroy()))
    this.proxy.keepAliveTimeout = 60_000
    this.proxy.listen(this.options.port ?? 0, "127.0.0.1")
    await once(this.proxy, "listening")
    return (this.url = `http://127.0.0.1:${(this.proxy.address() as AddressInfo).port}`)
  }

  async stop(): Promise<void> {
    this.proxy?.closeAllConnections()
    this.proxy?.close()
    this.child?.kill("SIGTERM")
    rmSync(this.folder, { recursive: true, force: true })
  }

  injectFault(path: string, fault: Omit<Fault, "path">): void {
    this.faults.push({ ...fault, path })
  }

  injectError(path: string, status: number, count = 1, retryAfter?: number): void {
    this.injectFault(path, { status, count, retryAfter })
  }

  clearInjectedFaults(): void {
    this.faults = []
  }

  private take(path: string, method: string): Fault | undefined {
    const fault = this.faults.find((one) => one.path === path && (!one.method || one.method.toUpperCase() === method))
    if (!fault || Math.random() > (fault.probability ?? 1)) return undefined
    fault.count = (fault.count ?? 1) - 1
    if (fault.count <= 0) this.faults = this.faults.filter((one) => one !== fault)
    return fault
  }

  private async answer(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
    const path = new URL(asked.url!, "http://x").pathname
    if (path === "/_test/inject-error") {
      const sent = await body(asked)
      if (asked.method === "POST") {
        const { path: of, ...fault } = JSON.parse(sent.toString()) as Fault
        this.injectFault(of, fault)
      } else this.clearInjectedFaults()
      answer.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ ok: true }))
      return
    }
    const fault = this.take(path, asked.method!)
    if (fault?.delayMs) await pause(fault.delayMs + Math.random() * (fault.jitterMs ?? 0))
    if (fault?.dropConnection) return void asked.socket.destroy()
    if (fault?.status) {
      const after = fault.retryAfter === undefined ? {} : { "retry-after": `${fault.retryAfter}` }
      asked.resume()
      return void answer.writeHead(fault.status, { "content-type": "text/plain", ...after }).end("Injected error for testing")
    }
    this.forward(asked, answer, fault)
  }

  private forward(asked: IncomingMessage, answer: ServerResponse, fault?: Fault): void {
    const { method, url, headers } = asked
    // Their server has streams everywhere, ours below one path.
    const below = url!.startsWith(`${ROOT}/`) ? "" : ROOT
    const source = headers["stream-forked-from"]
    const forked = below && source ? { "stream-forked-from": below + source } : {}
    const onward = request({ host: "127.0.0.1", port: this.target, method, path: below + url, headers: { ...headers, ...forked } }, async (got) => {
      const { "content-length": _length, ...others } = got.headers
      const changes = fault && (fault.truncateBodyBytes !== undefined || fault.corruptBody)
      const head = changes ? others : got.headers
      if (below && head.location) head.location = head.location.replace(below, "")
      answer.writeHead(got.statusCode!, head)
      answer.flushHeaders()
      const events = got.headers["content-type"]?.startsWith("text/event-stream")
      if (fault?.injectSseEvent && events) answer.write(`event: ${fault.injectSseEvent.eventType}\ndata: ${fault.injectSseEvent.data}\n\n`)
      if (!changes) return void got.pipe(answer)
      const whole = await body(got)
      const cut = whole.subarray(0, fault.truncateBodyBytes ?? whole.length)
      if (fault.corruptBody) cut.fill("XYZ", 0, Math.min(cut.length, 3))
      answer.end(cut)
    })
    onward.on("error", () => answer.destroy())
    answer.on("close", () => onward.destroy())
    asked.pipe(onward)
  }
}

