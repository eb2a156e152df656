// Opens the page while appends, a long-poll reader and an SSE reader are at work; prints `ok claim` or `FAILED claim` per check.
import { readFileSync } from "node:fs"
import { chromium } from "playwright-core"

const [base, pid, withShapes, withNodes, folderOfNodes] = process.argv.slice(2)
const shots = process.env.LIVE_SHOTS
const check = (claim, holds, why = "") => console.log(holds ? `ok ${claim}` : `FAILED ${claim} ${why}`)
const pause = (ms) => new Promise((done) => setTimeout(done, ms))

// ---- load

const url = `${base}/v1/stream/load`
let loading = true
async function writer(n) {
  const stream = `${url}/${n}`
  await fetch(stream, { method: "PUT", headers: { "content-type": "text/plain" } })
  for (let turn = 0; loading; turn++) {
    await fetch(stream, { method: "POST", headers: { "content-type": "text/plain" }, body: "x".repeat(500) })
    // Waves, so that there is something to see.
    if (turn % 20 === 0) await pause(30 + 25 * Math.sin(Date.now() / 2000))
  }
}
async function follower(n) {
  // One connection lasts a minute.
  while (loading) {
    const response = await fetch(`${url}/${n}?offset=now&live=sse`).catch(() => null)
    if (!response?.ok) return
    const reader = response.body.getReader()
    while (loading && !(await reader.read()).done);
    await reader.cancel()
  }
}
const load = Promise.all(Array.from({ length: 8 }, (_, n) => writer(n)))
await pause(300)
const followers = [0, 1, 2].map(follower)

// ---- the page

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"] })
try {
  const page = await browser.newPage({ viewport: { width: 1240, height: 860 }, deviceScaleFactor: 2, colorScheme: "light" })
  const complaints = []
  page.on("console", (message) => { 
    // The one exception is about our own looking at pixels.
    if (["error", "warning"].includes(message.type()) && !message.text().includes("willReadFrequently")) complaints.push(message.text())
  })
  page.on("pageerror", (error) => complaints.push(String(error)))
  const asked = new Set()
  page.on("request", (request) => asked.add(request.url()))
  await page.goto(base)
  const figure = (name) => page.locator(`[data-figure="${name}"]`).textContent()
  const inked = () => page.evaluate(() => [...document.querySelectorAll("canvas")].map((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
    // Saturated pixels: lines, and neither grid nor text.
    let count = 0
    for (let at = 0; at < data.length; at += 4) count += data[at + 3] > 200 && Math.max(data[at], data[at + 1], data[at + 2]) - Math.min(data[at], data[at + 1], data[at + 2]) > 60
    return count
  }))

  await pause(3500)
  check("a server that is no node shows nothing of nodes", (await page.locator(".units").count()) === 0 && ![...asked].some((one) => one.includes("/v1/admin/nodes")))
  const moving = ["Appends: appends", "Append latency: p50", "Append latency: p99", "Content: in", "Content: out", "Settle lag: not settled yet", "requests", "time of a sync", "appends per sync"]
  const first = Object.fromEntries(await Promise.all(moving.map(async (name) => [name, await figure(name)])))
  for (const name of moving) check(`${name} is a figure`, parseFloat(first[name]) > 0, first[name])
  const before = await inked()
  await pause(4000)
  const second = Object.fromEntries(await Promise.all(moving.map(async (name) => [name, await figure(name)])))
  const moved = moving.filter((name) => first[name] !== second[name])
  check("figures move", moved.length >= 5, `only ${moved}`)
  const after = await inked()
  // A line gets shorter when a new peak changes the scale of its chart, but not those of most charts at once.
  const grown = after.filter((count, n) => count >= before[n] * 0.9)
  check("lines are drawn and grow", after.length === 4 && after.every((count) => count > 20) && grown.length >= 3, `${before} ${after}`)
  check("streams are counted", (await figure("streams")) === "8", await figure("streams"))
  check("readers that wait are counted", Number(await figure("waiting readers")) >= 1, await figure("waiting readers"))
  check("memory is known", /^\d.* MiB$/.test(await figure("memory")), await figure("memory"))
  const rows = () => page.locator(".list tbody tr").allTextContents()
  await page.waitForFunction(() => document.querySelectorAll(".list tbody tr").length === 8)
  await page.waitForFunction(() => /B\/s/.test(document.querySelector(".list tbody tr").textContent), null, { timeout: 20000 })
  check("streams are listed with size, rate and type", (await rows()).every((row) => /^load\/\d+[\d.]+ (KiB|MiB)[\d.]+ [KM]iB\/stext\/plainopenall$/.test(row)), (await rows())[0])
  check("it says that it serves, since when, and which version", /serving/.test(await page.locator("#state").textContent()) && /^up \d+/.test(await page.locator("#uptime").textContent()) && /^\d+\.\d+/.test(await page.locator("#version").textContent()))
  await pause(Number(process.env.LIVE_SECONDS ?? 4) * 1000)
  await page.screenshot({ path: `${shots}/light.png` })
  // Those of docs/ops/metrics.md: LIVE_SECONDS=110 tests/live/run.sh, then docs/live-light.png and docs/live-dark.png are these.
  if (process.env.LIVE_SECONDS) {
    await page.setViewportSize({ width: 1240, height: 1010 })
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme })
      await pause(1200)
      await page.screenshot({ path: `${shots}/live-${colorScheme}.png`, scale: "css" })
    }
    await page.setViewportSize({ width: 1240, height: 860 })
  }
  await page.emulateMedia({ colorScheme: "dark" })
  await pause(1200)
  const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor)
  check("it is dark where that is wanted", ground === "rgb(15, 19, 23)", ground)
  await page.screenshot({ path: `${shots}/dark.png` })
  await page.setViewportSize({ width: 390, height: 844 })
  await pause(1200)
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  check("it fits on a telephone", overflow <= 0, `${overflow} px too wide`)
  await page.screenshot({ path: `${shots}/narrow.png`, fullPage: true })
  check("the console has nothing to complain about", complaints.length === 0, complaints.join(" | "))
  const outside = [...asked].filter((one) => !one.startsWith(base) && !one.startsWith("data:"))
  check("nothing is asked of anybody else", outside.length === 0, outside.join(" "))
  const loaded = await page.evaluate((elsewhere) => fetch(elsewhere).then(() => "answered", () => "refused"), "http://127.0.0.1:1/")
  const blocked = complaints.some((text) => /Content Security Policy/.test(text))
  check("the policy lets nothing else through", loaded === "refused" && blocked, complaints.join(" | "))

  // ---- words

  const unexplained = await page.evaluate(() => [...document.querySelectorAll("th, .card h2 b, .facts .card")].filter((one) => (one.title ?? "").length < 15).map((one) => one.textContent))
  check("every chart, figure and column is explained where it stands", unexplained.length === 0, unexplained.join(" | "))
  const meanings = await page.evaluate(() => [document.querySelectorAll("dt").length, document.querySelectorAll(".charts .card, .facts .card").length])
  check("and in a list of words, for readers without a mouse", meanings[0] === meanings[1] && meanings[0] > 12, meanings.join(" "))

  // ---- a server with tokens

  const who = { asked: 0, told: [] }
  const guard = (route) => {
    const { authorization } = route.request().headers()
    who.asked++
    return authorization === "Bearer s3cret" ? route.continue() : route.fulfill({ status: authorization ? 403 : 401, body: "who?" })
  }
  await page.route("**/metrics", guard)
  await page.waitForSelector("#ask:not([hidden])")
  check("without a token it says what is missing", /a token is needed/.test(await page.locator("#state").textContent()))
  const before401 = who.asked
  await pause(3500)
  check("and asks the server no more until it has one", who.asked === before401, `${who.asked - before401} requests in 3.5 s`)
  await page.screenshot({ path: `${shots}/token.png` })
  await page.fill("#token", "wrong")
  await page.keyboard.press("Enter")
  await page.waitForFunction(() => /may not read everything/.test(document.getElementById("state").textContent))
  check("a token that is not enough is told from none", await page.locator("#ask").isVisible())
  await page.fill("#token", "s3cret")
  await page.keyboard.press("Enter")
  await page.waitForSelector("#ask[hidden]", { state: "attached" })
  check("with one it goes on", await page.waitForFunction(() => document.getElementById("state").textContent === "serving").then(() => true))
  await page.unroute("**/metrics")

  // ---- a server that stops answering

  loading = false
  await Promise.all([load, ...followers])
  process.kill(Number(pid), "SIGSTOP")
  await pause(300)
  process.kill(Number(pid), "SIGCONT")
  await page.waitForFunction(() => document.getElementById("state").textContent === "serving")
  // Two minutes of lines would hide what comes: a new page.
  await page.goto(base)
  await page.setViewportSize({ width: 1240, height: 1300 })
  await pause(4500)
  check("requests of the page itself are not counted", (await figure("requests")) === "0/s", await figure("requests"))
  check("nor is what they bring", (await figure("Content: out")) === "0 B/s", await figure("Content: out"))
  check("at rest no latency is drawn", (await inked())[1] === 0, String(await inked()))
  await fetch(`${url}/0`, { method: "POST", headers: { "content-type": "text/plain" }, body: "one" })
  await pause(3500)
  check("a single append is drawn", (await inked())[1] > 5, String(await inked()))
  await page.screenshot({ path: `${shots}/rest.png` })
  for (let n = 0; n < 20; n++) await fetch(`${base}/v1/stream/more/${n}%20${n === 3 ? "%3Cb%3Ebold" : ""}`, { method: "PUT", headers: { "content-type": "application/json" } })
  await page.waitForFunction(() => document.querySelectorAll(".list tbody tr").length === 15, null, { timeout: 20000 })
  await page.click("button[aria-label='next page']")
  await page.waitForFunction(() => document.querySelectorAll(".list tbody tr").length === 13, null, { timeout: 20000 })
  check("long lists have pages", (await rows()).some((row) => row.startsWith("more/9")))
  check("there is no next page after the last", await page.locator("button[aria-label='next page']").isDisabled())
  await page.fill("input[aria-label='begins with']", "more/3")
  await page.keyboard.press("Enter")
  await page.waitForFunction(() => document.querySelectorAll(".list tbody tr").length === 1, null, { timeout: 20000 })
  check("names are found by their beginning, and shown as text", (await rows())[0].startsWith("more/3 <b>bold"), (await rows())[0])
  check("at rest the rate is zero and there is no latency", (await figure("Appends: appends")) === "0/s" && (await figure("Append latency: p50")) === "–", await figure("Appends: appends"))
  process.kill(Number(pid), "SIGKILL")
  await page.waitForFunction(() => document.getElementById("state").className === "bad", null, { timeout: 15000 })
  check("a server that is gone is said to be", (await page.locator("#state").textContent()) === "no answer")

  // ---- nodes: at rest, at work, and when one of them dies

  const [nodeOne, nodeTwo, nodeThree] = withNodes.split(" ")
  const nodes = await browser.newPage({ viewport: { width: 1240, height: 1300 }, deviceScaleFactor: 2, colorScheme: "light" })
  const complaintsOfNodes = []
  nodes.on("console", (message) => { if (["error", "warning"].includes(message.type())) complaintsOfNodes.push(message.text()) })
  nodes.on("pageerror", (error) => complaintsOfNodes.push(String(error)))
  await nodes.goto(nodeOne)
  const table = () => nodes.locator(".list").first().locator("tbody tr").allTextContents()
  const cells = () => nodes.locator(".units li").allTextContents()
  const until = (holds, of) => nodes.waitForFunction(holds, of, { timeout: 30000 }).then(() => true, () => false)
  check("nodes are listed with their units", await until(() => document.querySelectorAll(".units li").length === 6 && document.querySelectorAll(".list")[0].querySelectorAll("tbody tr").length === 3))
  check("nodes come before the streams", (await nodes.locator(".list b").first().textContent()) === "Nodes")
  check("the page's own node is marked, and all of them live", (await table())[0].startsWith("node-1 ◂ this one") && (await table()).every((row) => row.includes("live")), (await table()).join(" | "))
  check("each unit says its owner", await until(() => [...document.querySelectorAll(".units li")].every((unit) => /^\d+node-[123]$/.test(unit.textContent))), (await cells()).join(" "))
  check("a node without streams says so", /no streams/.test(await nodes.locator(".list").last().locator("p").textContent()))
  await nodes.screenshot({ path: `${shots}/nodes-empty.png`, fullPage: true })

  let pouring = true
  const pour = async (n) => {
    const stream = `${[nodeOne, nodeTwo, nodeThree][n % 3]}/v1/stream/nodes/${n}`
    await fetch(stream, { method: "PUT", headers: { "content-type": "text/plain" } })
    while (pouring) await fetch(stream, { method: "POST", headers: { "content-type": "text/plain" }, body: "y".repeat(400) }).then(() => pause(20), () => pause(100))
  }
  const poured = Promise.all(Array.from({ length: 12 }, (_, n) => pour(n)))
  const isAtWork = () => ["Appends: appends", "streams", "appends per sync"].every((name) => parseFloat(document.querySelector(`[data-figure="${name}"]`).textContent) > 0)
  check("figures of a node are those of its units", await until(isAtWork))
  await until(() => document.querySelectorAll(".list")[1].querySelectorAll("tbody tr").length === 12)
  await nodes.screenshot({ path: `${shots}/nodes-busy.png`, fullPage: true })

  process.kill(Number(readFileSync(`${folderOfNodes}/node-3.pid`, "utf8")), "SIGKILL")
  check("a node that died is said to be gone", await until(() => [...document.querySelectorAll(".list")[0].querySelectorAll("tbody tr")].some((row) => /^node-3.*gone/.test(row.textContent))), (await table()).join(" | "))
  await nodes.screenshot({ path: `${shots}/nodes-dead.png`, fullPage: true })
  check("its units get other owners", await until(() => [...document.querySelectorAll(".units li")].every((unit) => /^\d+node-[12]$/.test(unit.textContent))), (await cells()).join(" "))
  await fetch(`${nodeTwo}/v1/admin/nodes/drain`, { method: "POST" })
  check("a node that drains is said to", await until(() => [...document.querySelectorAll(".list")[0].querySelectorAll("tbody tr")].some((row) => /^node-2.*draining0none$/.test(row.textContent.replace(/\d+ s ago|now/, "")))), (await table()).join(" | "))
  check("and the other one owns all units", await until(() => document.querySelectorAll(".units li.own").length === 6))
  await nodes.emulateMedia({ colorScheme: "dark" })
  await pause(1200)
  await nodes.screenshot({ path: `${shots}/nodes-dark.png`, fullPage: true })
  await nodes.setViewportSize({ width: 390, height: 844 })
  await pause(600)
  const wider = await nodes.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  check("nodes fit on a telephone", wider <= 0, `${wider} px too wide`)
  await nodes.screenshot({ path: `${shots}/nodes-narrow.png`, fullPage: true })
  const wordless = await nodes.evaluate(() => [...document.querySelectorAll("th, .units li")].filter((one) => (one.title ?? "").length < 15).map((one) => one.textContent))
  check("every column and unit is explained where it stands", wordless.length === 0, wordless.join(" | "))
  pouring = false
  await poured
  check("the console has nothing to complain about on a node", complaintsOfNodes.length === 0, complaintsOfNodes.join(" | "))
  await nodes.close()

  // ---- shapes, if there is a database

  if (withShapes) {
    const shapes = await browser.newPage({ viewport: { width: 1240, height: 1500 }, deviceScaleFactor: 2, colorScheme: "dark" })
    shapes.on("console", (message) => { if (message.type() === "error") complaints.push(message.text()) })
    await fetch(`${withShapes}/v1/shape?table=items&offset=-1`)
    await fetch(`${withShapes}/v1/shape?table=items&offset=-1&where=id%20%3E%201`)
    await shapes.goto(withShapes)
    await shapes.waitForFunction(() => document.querySelectorAll(".list").length === 2 && document.querySelectorAll(".list")[1].querySelectorAll("tbody tr").length === 2, null, { timeout: 30000 })
    const listed = await shapes.locator(".list").nth(1).locator("tbody tr").allTextContents()
    check("shapes are listed with table, clause and rows", listed.some((row) => /^public.itemsall rows\w+3/.test(row)) && listed.some((row) => row.includes("id > 1")), listed.join(" | "))
    check("figures of shapes are shown where there are shapes", (await shapes.locator('[data-figure="shapes"]').textContent()) === "2" && (await shapes.locator("canvas").count()) === 6)
    await pause(2500)
    await shapes.screenshot({ path: `${shots}/shapes.png` })
  }
} finally {
  loading = false
  await browser.close()
}
process.exit(0)
