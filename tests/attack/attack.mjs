// Shared parts of the attacks: raw sockets, memory, and the report of a claim.

import { readFileSync } from "node:fs"
import net from "node:net"

export const { BASE, PID, LOG, ADMIN, READER, WRITER, GONE } = process.env
export const address = new URL(BASE)

export const check = (claim, holds, why = "") => console.log(holds ? `ok ${claim}` : `FAILED ${claim} ${String(why).slice(0, 400)}`)
export const pause = (ms) => new Promise((done) => setTimeout(done, ms))
export const bearer = (token) => ({ authorization: `Bearer ${token}` })

/** Waits until `probe` holds; whether it came to that. */
export async function eventually(probe, ms = 15000) {
  for (const until = Date.now() + ms; Date.now() < until; await pause(50)) if (await probe()) return true
  return false
}

/** The server's resident memory in MiB. */
export const memory = () => Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${PID}/status`, "utf8"))[1]) / 1024

/**
 * Sends bytes as they are. What came back up to the end of the connection, or up to `ms` of silence: then `open` says that the server left
 * it open.
 */
export function raw(bytes, { ms = 1500 } = {}) {
  return new Promise((resolve) => {
    const socket = net.connect(Number(address.port), address.hostname)
    let text = ""
    const end = (open) => {
      clearTimeout(timer)
      socket.destroy()
      resolve({ text, open, statuses: [...text.matchAll(/^HTTP\/1\.1 (\d{3}) /gm)].map((match) => Number(match[1])) })
    }
    let timer = setTimeout(() => end(true), ms)
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1")
      clearTimeout(timer)
      timer = setTimeout(() => end(true), ms)
    })
    socket.on("end", () => end(false)).on("error", () => end(false))
    socket.write(bytes)
  })
}

/** A connection that stays. */
export function hold(bytes = "") {
  return new Promise((resolve) => {
    const socket = net.connect(Number(address.port), address.hostname)
    const held = { socket, text: "", closed: false }
    socket.on("data", (chunk) => (held.text += chunk.toString("latin1")))
    socket.on("close", () => (held.closed = true)).on("error", () => {})
    socket.on("connect", () => {
      if (bytes) socket.write(bytes)
      resolve(held)
    })
    socket.on("close", () => resolve(held))
  })
}

export const request = (path, { token, method = "GET", headers = {}, body } = {}) =>
  fetch(BASE + path, { method, body, headers: { ...(token ? bearer(token) : {}), ...headers } })

/** Status and text. */
export async function ask(path, options) {
  const answer = await request(path, options)
  return { status: answer.status, headers: answer.headers, text: await answer.text() }
}
