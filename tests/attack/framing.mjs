// Requests that two readers could end at different places, headers that would end early, inputs without measure.
//
// Behind each ambiguous request stands a second one that would make a stream: if the first one ends where its sender hopes, the stream is there.

import { ADMIN, address, ask, check, memory, raw } from "./attack.mjs"

const auth = `Authorization: Bearer ${ADMIN}`
const host = `Host: ${address.host}`
let planted = 0

/** A head with these lines, and the bytes behind it. */
const post = (lines, rest = "", target = "/v1/stream/victim", version = "HTTP/1.1") =>
  [`POST ${target} ${version}`, host, auth, "Content-Type: text/plain", ...lines, "", rest].join("\r\n")
const smuggled = () => `PUT /v1/stream/planted-${++planted} HTTP/1.1\r\n${host}\r\n${auth}\r\nContent-Length: 0\r\n\r\n`

await ask("/v1/stream/victim", { token: ADMIN, method: "PUT", headers: { "content-type": "text/plain" } })

// ---- where a request ends

const chunked = (body) => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
const AMBIGUOUS = {
  "Content-Length and chunked": (s) => post(["Content-Length: 6", "Transfer-Encoding: chunked"], `0\r\n\r\n${s}`),
  "chunked and Content-Length": (s) => post(["Transfer-Encoding: chunked", `Content-Length: ${s.length}`], `0\r\n\r\n${s}`),
  "two Content-Lengths": (s) => post(["Content-Length: 1", `Content-Length: ${1 + s.length}`], `x${s}`),
  "two Content-Lengths in one line": (s) => post([`Content-Length: 1, ${1 + s.length}`], `x${s}`),
  "a Content-Length with a sign": (s) => post(["Content-Length: +1"], `x${s}`),
  "a negative Content-Length": (s) => post(["Content-Length: -1"], s),
  "a Content-Length in hexadecimal": (s) => post(["Content-Length: 0x1"], `x${s}`),
  "a Content-Length with a blank in it": (s) => post(["Content-Length: 1 0"], `x${s}`),
  "a Content-Length of digits that are not ASCII": (s) => post(["Content-Length: \u0661"], `x${s}`),
  "a Content-Length beyond 2^64": (s) => post(["Content-Length: 18446744073709551617"], `x${s}`),
  "an empty Content-Length": (s) => post(["Content-Length: "], s),
  "a blank before the colon": (s) => post(["Content-Length : 1"], `x${s}`),
  "a folded line": (s) => post(["X: y\r\n Content-Length: 1"], `x${s}`),
  "a folded Transfer-Encoding": (s) => post(["Transfer-Encoding:\r\n chunked"], `0\r\n\r\n${s}`),
  "an unknown coding": (s) => post(["Transfer-Encoding: xchunked"], `0\r\n\r\n${s}`),
  "chunked and then another coding": (s) => post(["Transfer-Encoding: chunked, identity"], `0\r\n\r\n${s}`),
  "another coding before chunked": (s) => post(["Transfer-Encoding: gzip, chunked"], `0\r\n\r\n${s}`),
  "chunked twice": (s) => post(["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], `0\r\n\r\n${s}`),
  "identity": (s) => post(["Transfer-Encoding: identity", "Content-Length: 1"], `x${s}`),
  "a vertical tab before chunked": (s) => post(["Transfer-Encoding: \x0bchunked"], `0\r\n\r\n${s}`),
  "quotes around chunked": (s) => post(['Transfer-Encoding: "chunked"'], `0\r\n\r\n${s}`),
  "a NUL in a value": (s) => post(["X: a\0b", "Content-Length: 1"], `x${s}`),
  "a bare CR in a value": (s) => post(["X: a\rContent-Length: 1"], `x${s}`),
  "a bare LF after a line": (s) => post(["X: y\nContent-Length: 1"], `x${s}`),
  "bare LFs throughout": (s) => post(["Content-Length: 1"], `x${s}`).replaceAll("\r\n", "\n"),
  "chunked in HTTP/1.0": (s) => post(["Transfer-Encoding: chunked"], `0\r\n\r\n${s}`, undefined, "HTTP/1.0"),
  "a chunk size with a sign": (s) => post(["Transfer-Encoding: chunked"], `+1\r\nx\r\n0\r\n\r\n${s}`),
  "a chunk size with 0x": (s) => post(["Transfer-Encoding: chunked"], `0x1\r\nx\r\n0\r\n\r\n${s}`),
  "a chunk size beyond 2^64": (s) => post(["Transfer-Encoding: chunked"], `10000000000000001\r\nx\r\n0\r\n\r\n${s}`),
  "an empty chunk size": (s) => post(["Transfer-Encoding: chunked"], `\r\nx\r\n0\r\n\r\n${s}`),
  "a chunk that is longer than it says": (s) => post(["Transfer-Encoding: chunked"], `1\r\nxx\r\n0\r\n\r\n${s}`),
  "a chunk that ends in LF": (s) => post(["Transfer-Encoding: chunked"], `1\nx\n0\n\n${s}`),
  "a chunk extension with a line break": (s) => post(["Transfer-Encoding: chunked"], `1;a=\nb\r\nx\r\n0\r\n\r\n${s}`),
  "a chunk extension with a CR": (s) => post(["Transfer-Encoding: chunked"], `1;a=\rb\r\nx\r\n0\r\n\r\n${s}`),
  "two Hosts": (s) => post([`Host: other`, "Content-Length: 1"], `x${s}`),
  "no Host": (s) => post(["Content-Length: 1"], `x${s}`).replace(`${host}\r\n`, ""),
  "a target with a blank": (s) => post(["Content-Length: 1"], `x${s}`, "/v1/stream/victim x"),
  "a target with a tab": (s) => post(["Content-Length: 1"], `x${s}`, "/v1/stream/victim\tx"),
  "a method with a blank before it": (s) => ` ${post(["Content-Length: 1"], `x${s}`)}`,
  "a line without a colon": (s) => post(["nonsense", "Content-Length: 1"], `x${s}`),
  "a name with a blank": (s) => post(["X Y: z", "Content-Length: 1"], `x${s}`),
  "an empty name": (s) => post([": z", "Content-Length: 1"], `x${s}`),
  "HTTP/1.2": (s) => post(["Content-Length: 1"], `x${s}`, undefined, "HTTP/1.2"),
  "HTTP/2's preface": (s) => `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${s}`,
  "HTTP/0.9": (s) => `GET /v1/stream/victim\r\n${s}`,
  "an upgrade to h2c": (s) => post(["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", "Content-Length: 1, 1"], `x${s}`),
  "an expectation that is none": (s) => post(["Expect: 200-ok", "Content-Length: 1"], `x${s}`),
}
for (const [what, form] of Object.entries(AMBIGUOUS)) {
  const { statuses, text, open } = await raw(Buffer.from(form(smuggled()), "latin1"))
  const first = statuses[0]
  check(`${what} is refused, and the connection ends`, statuses.length <= 1 && (first === undefined || first >= 400) && !open, JSON.stringify(statuses) + text.slice(0, 200))
}
{
  const { text } = await ask("/v1/stream/__ds/streams?prefix=planted", { token: ADMIN })
  check("no request was hidden in another", JSON.parse(text).streams.length === 0, text)
}
{
  // As a proxy in front would send them: one connection, many people's requests.
  const two = post(["Content-Length: 3"], "one") + post(["Transfer-Encoding: chunked"], chunked("two"))
  const { statuses } = await raw(two + post(["Connection: close", "Content-Length: 5"], "three"))
  check("what is clear is taken, one after the other", statuses.join() === "204,204,204", statuses)
  check("and stored as it was sent", (await ask("/v1/stream/victim", { token: ADMIN })).text === "onetwothree")
}

// ---- answers

const REFLECTED = [
  ["a line break in a path", "GET /v1/stream/a%0d%0aX-Injected:%20yes HTTP/1.1"],
  ["a line break in an unknown path", "GET /x%0d%0aX-Injected:%20yes HTTP/1.1"],
  ["a line break in a parameter", "GET /v1/stream/victim?offset=%0d%0aX-Injected:%20yes HTTP/1.1"],
  ["a line break in a cursor", "GET /v1/stream/victim?offset=-1&live=long-poll&cursor=1%0d%0aX-Injected:%20yes HTTP/1.1"],
  ["a name that ends a header", "PUT /v1/stream/n%0d%0aX-Injected:%20yes HTTP/1.1"],
  ["a fork of such a name", "PUT /v1/stream/fork HTTP/1.1", "Stream-Forked-From: /v1/stream/a%0d%0aX-Injected: yes"],
  ["a type with more in it", "PUT /v1/stream/type HTTP/1.1", 'Content-Type: text/plain; x="\x7f\x01"'],
  ["a host with markup", "PUT /v1/stream/located HTTP/1.1", "Host2: x"],
  ["a scheme that is none", "PUT /v1/stream/located2 HTTP/1.1", "X-Forwarded-Proto: javascript:alert(1)//"],
  ["an origin with markup", "GET /v1/stream/victim HTTP/1.1", "Origin: <script>alert(1)</script>"],
  ["a request id with markup", "GET /v1/stream/victim HTTP/1.1", "X-Request-Id: <script>alert(1)</script><script>"],
]
for (const [what, line, more] of REFLECTED) {
  const { text, statuses } = await raw(Buffer.from([line, host, auth, "Connection: close", ...(more ? [more] : []), "Content-Length: 0", "", ""].join("\r\n"), "latin1"))
  const head = text.split("\r\n\r\n")[0].toLowerCase()
  check(`${what} makes no header`, statuses.length === 1 && !/^x-injected/m.test(head) && !/javascript:|<script/.test(head), text.slice(0, 300))
}

// ---- without measure

const idle = memory()
const large = [
  ["a head of 1 MiB", () => raw(`GET /v1/stream/victim HTTP/1.1\r\n${host}\r\nX: ${"x".repeat(1 << 20)}\r\n\r\n`), [431]],
  ["10,000 fields", () => raw(`GET /v1/stream/victim HTTP/1.1\r\n${host}\r\n${"a: b\r\n".repeat(10000)}\r\n`), [431]],
  ["a target of 1 MiB", () => raw(`GET /${"x".repeat(1 << 20)} HTTP/1.1\r\n${host}\r\n\r\n`), [414]],
  ["a body that is announced too large", () => raw(post(["Content-Length: 99999999999"])), [413]],
  ["a body that grows too large", () => raw(post(["Transfer-Encoding: chunked"], `${(40 << 20).toString(16)}\r\n${"x".repeat(40 << 20)}\r\n0\r\n\r\n`)), [413]],
  ["a chunk extension of 1 MiB", () => raw(post(["Transfer-Encoding: chunked"], `1;${"x".repeat(1 << 20)}\r\nx\r\n0\r\n\r\n`)), [400, 413, 431]],
  ["trailers of 1 MiB", () => raw(post(["Transfer-Encoding: chunked"], `1\r\nx\r\n0\r\nX: ${"x".repeat(1 << 20)}\r\n\r\n`)), [400, 413, 431]],
]
for (const [what, send, expected] of large) {
  const { statuses, text } = await send()
  check(`${what} is refused`, expected.includes(statuses[0]) || (statuses.length === 0 && text === ""), `${statuses} ${text.slice(0, 200)}`)
}
const json = { "content-type": "application/json" }
await ask("/v1/stream/json", { token: ADMIN, method: "PUT", headers: json })
for (const [what, body, status] of [
  ["JSON 100,000 deep", "[".repeat(100000) + "]".repeat(100000), 400],
  ["JSON that never ends", `["${"x".repeat(1 << 20)}`, 400],
  ["a million values", `[${"1,".repeat(1_000_000)}1]`, 204],
  ["a number without end", "1".repeat(1 << 20), 204],
]) {
  const { status: got, text } = await ask("/v1/stream/json", { token: ADMIN, method: "POST", headers: json, body })
  check(`${what} is ${status === 204 ? "taken" : "refused"}`, got === status && text.length < 2000, `${got} ${text.slice(0, 200)}`)
}
for (const [what, path, options, status] of [
  ["a token request of 200 KB", "/v1/token", { method: "POST", body: JSON.stringify({ prefix: "x".repeat(200000) }) }, 400],
  ["a name of 10,000 bytes", `/v1/stream/${"n".repeat(10000)}`, { method: "PUT" }, 400],
  ["a thousand parameters", `/v1/stream/victim?${"a=b&".repeat(1000)}offset=-1`, {}, 200],
  ["a subscription of 2 MiB", "/v1/stream/__ds/subscriptions/s", { method: "PUT", body: "x".repeat(2 << 20) }, 413],
]) {
  const { status: got, text } = await ask(path, { token: ADMIN, ...options })
  check(`${what}: ${status}, in few words`, got === status && text.length < 2000, `${got} ${text.length} ${text.slice(0, 200)}`)
}
check("none of it stays in memory", memory() < idle + 200, `${idle} → ${memory()} MiB`)
