// Many clients through nginx over HTTP/2, and their cost to the server behind it.
import { readFileSync } from "node:fs"
import { connect } from "node:http2"

const PER_CONNECTION = 100

export const check = (claim, holds, why = "") => console.log(holds ? `ok ${claim}` : `FAILED ${claim} ${why}`)
export const pause = (ms) => new Promise((done) => setTimeout(done, ms))

/** Sessions for this many clients; the certificate is of `localhost`. */
export function sessionsFor(clients, front, ca) {
  const lookup = (_, options, found) => found(null, options.all ? [{ address: "127.0.0.1", family: 4 }] : "127.0.0.1", 4)
  const session = () => connect(front, { ca: readFileSync(ca), servername: "localhost", lookup })
  return Array.from({ length: clients / PER_CONNECTION }, session)
}

export function get(session, url) {
  return new Promise((done, failed) => {
    const request = session.request({ ":path": url })
    let head = {}, body = ""
    request.setEncoding("utf8")
    request.on("response", (headers) => { head = headers })
    request.on("data", (data) => { body += data })
    request.on("end", () => done({ head, body }))
    request.on("error", failed)
  })
}

/** How many requests the server has had; the question is one of them. */
export async function requests(origin) {
  const page = await (await fetch(`${origin}/metrics`)).text()
  return Number(/^thalweg_requests_total (\d+)/m.exec(page)[1])
}
