// Tokens: none, others', expired, changed, too little; and paths that are written strangely.

import { readFileSync } from "node:fs"
import { ADMIN, GONE, LOG, READER, WRITER, address, ask, bearer, check, pause, raw } from "./attack.mjs"

const text = { "content-type": "text/plain" }
const put = (name, body) => ask(`/v1/stream/${name}`, { token: ADMIN, method: "PUT", headers: text, body })
for (const [name, body] of [["chat/a", "for readers"], ["secret/plan", "SECRET"], ["chatter/a", "SECRET"], ["chat", "SECRET"]]) await put(name, body)

const issue = async (token, body) => {
  const got = await ask("/v1/token", { token, method: "POST", body: JSON.stringify(body) })
  return { ...got, token: got.status === 200 ? JSON.parse(got.text).access_token : undefined }
}
const signed = (await issue(READER, { prefix: "chat/" })).token
check("a token gives one of less", Boolean(signed))
check("and it works", (await ask("/v1/stream/chat/a", { token: signed })).text === "for readers")

// ---- tokens that open nothing

const [mark, claim, mac] = signed.split(".")
const forge = (change) => `${mark}.${Buffer.from(JSON.stringify({ ...JSON.parse(Buffer.from(claim, "base64url")), ...change })).toString("base64url")}.${mac}`
const FORGED = {
  "no token": undefined,
  "an empty one": "",
  "an expired one": GONE,
  "half a token": READER.slice(0, -1),
  "a token in capitals": READER.toUpperCase(),
  "another's name with one's secret": READER.replace("tw1.reader", "tw1.admin"),
  "a name that is not there": READER.replace("tw1.reader", "tw1.nobody"),
  "the hash in place of the token": /hash = "(sha256:[^"]+)"/.exec(readFileSync(LOG.replace("server.log", "tokens.toml"), "utf8"))[1],
  "a claim of more": forge({ prefix: "*" }),
  "a claim of another scope": forge({ scope: "admin" }),
  "a claim for longer": forge({ expires: Date.now() + 1e10 }),
  "a claim without a parent": forge({ parent: undefined }),
  "a claim of a table": forge({ shape: [{ table: "users" }] }),
  "no signature": `${mark}.${claim}.`,
  "a signature of zeros": `${mark}.${claim}.${"A".repeat(43)}`,
  "a claim that is no JSON": `${mark}.${Buffer.from("x").toString("base64url")}.${mac}`,
  "a JSON web token without algorithm": `eyJhbGciOiJub25lIn0.${claim}.`,
  "a signed token marked as another": signed.replace("tws1.", "tw1."),
}
await pause(1100)
for (const [what, token] of Object.entries(FORGED)) {
  const got = await ask("/v1/stream/secret/plan", { headers: token === undefined ? {} : bearer(token) })
  check(`${what} opens nothing`, got.status === 401 && !got.text.includes("SECRET"), `${got.status} ${got.text}`)
}

// ---- rights that do not reach

for (const [what, token, path, options, expected] of [
  ["a reader does not write", READER, "/v1/stream/chat/a", { method: "POST", headers: text, body: "x" }, 403],
  ["a reader does not delete", READER, "/v1/stream/chat/a", { method: "DELETE" }, 403],
  ["a writer does not read", WRITER, "/v1/stream/a/x", {}, 403],
  ["a reader does not list all", READER, "/v1/stream/__ds/streams", {}, 403],
  ["a reader does not list half a segment", READER, "/v1/stream/__ds/streams?prefix=chat", {}, 403],
  ["a reader takes no backup", READER, "/v1/admin/backup", { method: "POST" }, 403],
  ["a reader subscribes to nothing", READER, "/v1/stream/__ds/subscriptions/s", { method: "PUT", body: "{}" }, 403],
  ["a reader sees no metrics", READER, "/metrics", {}, 403],
  ["a writer forks nothing that it may not read", WRITER, "/v1/stream/a/fork", { method: "PUT", headers: { "stream-forked-from": "/v1/stream/secret/plan" } }, 403],
  ["a reader hands on no more than it has", READER, "/v1/token", { method: "POST", body: '{"prefix":"*"}' }, 403],
  ["nor another scope", READER, "/v1/token", { method: "POST", body: '{"prefix":"chat/","scope":"admin"}' }, 403],
  ["nor rows of the database", ADMIN, "/v1/token", { method: "POST", body: '{"shape":[{"table":"users"}]}' }, 403],
  ["nor for longer than a day", READER, "/v1/token", { method: "POST", body: '{"prefix":"chat/","ttl":"25h"}' }, 400],
  ["a signed token hands on nothing", signed, "/v1/token", { method: "POST", body: '{"prefix":"chat/"}' }, 403],
]) {
  const got = await ask(path, { token, ...options })
  check(what, got.status === expected && !got.text.includes("SECRET"), `${got.status} ${got.text.slice(0, 200)}`)
}

// ---- ways to send one

for (const [what, target, headers, expected] of [
  ["a lasting token in the query", `/v1/stream/chat/a?access_token=${READER}`, [], 401],
  ["a lasting token in a cookie", "/v1/stream/chat/a", [`Cookie: thalweg_token=${READER}`], 401],
  ["a signed one in the query", `/v1/stream/chat/a?access_token=${signed}`, [], 200],
  ["a signed one in a cookie", "/v1/stream/chat/a", [`Cookie: x=y; thalweg_token=${signed}`], 200],
  ["one in an address that is opened", `/v1/stream/chat/a?access_token=${signed}`, ["Sec-Fetch-Mode: navigate"], 401],
  ["two in the query", `/v1/stream/chat/a?access_token=${signed}&access_token=${signed}`, [], 400],
  ["two headers", "/v1/stream/secret/plan", [`Authorization: Bearer ${READER}`, `Authorization: Bearer ${ADMIN}`], 400],
  ["another scheme", "/v1/stream/secret/plan", [`Authorization: Basic ${Buffer.from(`x:${ADMIN}`).toString("base64")}`], 401],
  ["a header that is not text", "/v1/stream/secret/plan", ["Authorization: Bearer \xff\xfe"], 401],
]) {
  const { statuses, text } = await raw(Buffer.from([`GET ${target} HTTP/1.1`, `Host: ${address.host}`, "Connection: close", ...headers, "", ""].join("\r\n"), "latin1"))
  check(`${what}: ${expected}`, statuses[0] === expected && !text.includes("SECRET"), text.slice(0, 300))
}
for (const method of ["POST", "PUT", "DELETE", "PATCH"]) {
  const wide = (await issue(ADMIN, { prefix: "*", scope: "admin" })).token
  const got = await ask(`/v1/stream/secret/plan?access_token=${wide}`, { method, headers: text, body: "x" })
  check(`a token in the query changes nothing (${method})`, got.status === 401, got.status)
}

// ---- paths

const PATHS = [
  "/v1/stream/secret/plan", "/v1/stream/secret%2Fplan", "/v1/stream/%73ecret/plan", "/v1/stream/%2573ecret/plan", "//v1/stream/secret/plan", "/v1//stream/secret/plan",
  "/v1/stream//secret/plan", "/v1/stream/./secret/plan", "/v1/stream/chat/../secret/plan", "/v1/stream/chat/%2e%2e/secret/plan", "/v1/stream/chat/..%2Fsecret/plan",
  "/v1/stream/chat/..;/secret/plan", "/v1/stream/chat\\..\\secret\\plan", "/v1/stream/chat/%c0%ae%c0%ae/secret/plan", "/v1/stream/chat%00/../secret/plan", "/v1/stream/secret/plan%00chat/",
  "/v1/stream/secret/plan?/chat/", "/v1/stream/secret/plan#/chat/a", "/v1/stream/secret/plan;chat/", "http://chat/v1/stream/secret/plan", "http://h/v1/stream/chat/../secret/plan", "/V1/stream/secret/plan",
  "/v1/%73tream/secret/plan", "/health/../v1/stream/secret/plan", "/v1/stream/__ds/../secret/plan", "/v1/stream/chatter/a", "/v1/stream/chat", "*", "/v1/stream/secret/plan HTTP/1.1\r\nX: y",
]
for (const path of PATHS) {
  for (const method of ["GET", "HEAD", "PUT", "DELETE"]) {
    const { statuses, text } = await raw(Buffer.from(`${method} ${path} HTTP/1.1\r\nHost: ${address.host}\r\nAuthorization: Bearer ${READER}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, "latin1"))
    const fine = (statuses[0] ?? 400) >= 400 && !text.includes("SECRET")
    if (!fine || method === "GET") check(`${method} ${JSON.stringify(path)} reaches nothing`, fine, text.slice(0, 200))
  }
}
check("what was to be reached is there", (await ask("/v1/stream/secret/plan", { token: ADMIN })).text === "SECRET")
check("no secret stands in the log", [ADMIN, READER, WRITER, signed].every((token) => !readFileSync(LOG, "utf8").includes(token.split(".").at(-1))))
