// The server as the tests see it: a process that can be started, killed and started again at the same address.
import { spawn, type ChildProcess } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, rmSync } from "node:fs"
import { createServer, type AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"

export class Server {
  readonly folder = mkdtempSync(join(tmpdir(), "thalweg-clients-"))
  private child?: ChildProcess
  private constructor(readonly port: number) {}

  static async start(): Promise<Server> {
    const probe = createServer().listen(0, "127.0.0.1")
    await once(probe, "listening")
    const { port } = probe.address() as AddressInfo
    await new Promise((done) => probe.close(done))
    const server = new Server(port)
    await server.restart()
    return server
  }

  url(name: string): string {
    return `http://127.0.0.1:${this.port}/v1/stream/${name}`
  }

  async restart(): Promise<void> {
    const data = join(this.folder, "data")
    const flags =
      process.env.THALWEG_KIND === "peer"
        ? ["--host", "127.0.0.1", "--port", `${this.port}`, "--data-dir", data, "--long-poll-timeout-ms", "2000"]
        : ["serve", "--listen", `127.0.0.1:${this.port}`, "--data", data, "--long-poll-timeout", "2s"]
    const child = spawn(process.env.THALWEG_BIN!, flags, { stdio: ["ignore", "ignore", "inherit"] })
    this.child = child
    for (;;) {
      if (child.exitCode !== null) throw new Error(`the server ended with ${child.exitCode}`)
      const health = await fetch(`http://127.0.0.1:${this.port}/health`).catch(() => undefined)
      if (health?.ok) return
      await new Promise((done) => setTimeout(done, 10))
    }
  }

  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<number | null> {
    const child = this.child!
    const ended = once(child, "exit")
    child.kill(signal)
    const [code] = await ended
    return code as number | null
  }

  async dispose(): Promise<void> {
    await this.kill()
    rmSync(this.folder, { recursive: true, force: true })
  }
}

/** Waits until `done` says so; the assertion after it then names the missing part. */
export async function until(done: () => boolean, ms = 15000): Promise<void> {
  const deadline = Date.now() + ms
  while (!done() && Date.now() < deadline) await new Promise((next) => setTimeout(next, 5))
}
