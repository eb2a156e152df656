// Opens the page while appends, a long-poll reader and an SSE reader are at work; prints `ok claim` or `FAILED claim` per check.
import { chromium } from "playwright-core"

const [base, pid] = process.argv.slice(2)
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
  const response = await fetch(`${url}/${n}?offset=now&live=sse`).catch(() => null)
  if (!response?.ok) return
  const reader = response.body.getReader()
  while (loading && !(await reader.read()).done);
  await reader.cancel()
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
  const moving = ["Appends: appends", "Append latency: p50", "Append latency: p99", "Traffic: in", "Traffic: out", "Settle lag: not settled yet", "requests", "time of a sync", "appends per sync"]
  const first = Object.fromEntries(await Promise.all(moving.map(async (name) => [name, await figure(name)])))
  for (const name of moving) check(`${name} is a figure`, parseFloat(first[name]) > 0, first[name])
  const before = await inked()
  await pause(4000)
  const second = Object.fromEntries(await Promise.all(moving.map(async (name) => [name, await figure(name)])))
  const moved = moving.filter((name) => first[name] !== second[name])
  check("figures move", moved.length >= 5, `only ${moved}`)
  const after = await inked()
  check("lines are drawn and grow", after.length === 4 && after.every((count, n) => count > 20 && count >= before[n] * 0.9), `${before} ${after}`)
  check("streams are counted", (await figure("streams")) === "8", await figure("streams"))
  check("readers that wait are counted", Number(await figure("waiting readers")) >= 1, await figure("waiting readers"))
  check("memory is known", /^\d.* MiB$/.test(await figure("memory")), await figure("memory"))
  check("it says that it serves, since when, and which version", /serving/.test(await page.locator("#state").textContent()) && /^up \d+/.test(await page.locator("#uptime").textContent()) && /^\d+\.\d+/.test(await page.locator("#version").textContent()))
  await pause(Number(process.env.LIVE_SECONDS ?? 4) * 1000)
  await page.screenshot({ path: `${shots}/light.png` })
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

  // ---- a server that wants to know who asks

  await page.route("**/metrics", (route) => route.request().headers().authorization === "Bearer s3cret" ? route.continue() : route.fulfill({ status: 401, body: "who?" }))
  await page.waitForSelector("#ask:not([hidden])")
  check("without a token it says what is missing", /401/.test(await page.locator("#state").textContent()))
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
  await pause(2500)
  check("at rest the rate is zero and there is no latency", (await figure("Appends: appends")) === "0/s" && (await figure("Append latency: p50")) === "–", await figure("Appends: appends"))
  process.kill(Number(pid), "SIGKILL")
  await page.waitForFunction(() => document.getElementById("state").className === "bad", null, { timeout: 15000 })
  check("a server that is gone is said to be", (await page.locator("#state").textContent()) === "no answer")
} finally {
  loading = false
  await browser.close()
}
process.exit(0)
