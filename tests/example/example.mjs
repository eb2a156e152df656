// Opens the example's page, changes its table by SQL, and looks what the page shows; prints `ok claim` or `FAILED claim` per check.
import { execFileSync } from "node:child_process"
import { chromium } from "playwright-core"

const [site] = process.argv.slice(2)
const check = (claim, holds, why = "") => console.log(holds ? `ok ${claim}` : `FAILED ${claim} ${why}`)
const sql = (text) => execFileSync(process.env.PSQL, ["-qAt", "-d", process.env.PG_URL, "-c", text], { encoding: "utf8" })

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"] })
try {
  const page = await browser.newPage({ viewport: { width: 900, height: 620 }, colorScheme: "light" })
  const complaints = [], asked = []
  // The client says on each page without TLS that browsers open few connections then.
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && !message.text().includes("HTTP (not HTTPS)") && complaints.push(message.text()))
  page.on("pageerror", (error) => complaints.push(String(error)))
  page.on("request", (request) => asked.push(request.url()))
  await page.goto(site)

  const rows = () => page.$$eval("li", (all) => all.map((li) => `${li.querySelector(".title").textContent}/${li.className}`))
  /** Waits until the page shows exactly these rows; says how long that took. */
  async function shows(claim, wanted, within = 5000) {
    const began = performance.now()
    let last
    while (performance.now() - began < within) {
      last = await rows()
      if (last.join() === wanted.join()) return check(`${claim} (${Math.round(performance.now() - began)} ms)`, true)
      await page.waitForTimeout(5)
    }
    check(claim, false, `shown: ${last}; wanted: ${wanted}`)
  }

  await shows("the page shows the rows", ["Buy milk/open", "Call Ann/open", "Water the plants/done"], 15000)
  check("values have their columns' types", (await page.textContent("#count")) === "2 open of 3", await page.textContent("#count"))
  // It must be waiting, or the first change would be part of catching up.
  await page.waitForTimeout(1000)
  sql("INSERT INTO items (title) VALUES ('Try ''thalweg''')")
  await shows("a row that SQL inserts appears", ["Buy milk/open", "Call Ann/open", "Water the plants/done", "Try 'thalweg'/open"])
  sql("UPDATE items SET done = true, title = 'Call Ann & Bob' WHERE id = 2")
  await shows("an update is shown", ["Buy milk/open", "Call Ann & Bob/done", "Water the plants/done", "Try 'thalweg'/open"])
  await page.screenshot({ path: `${process.env.EXAMPLE_SHOTS}/items.png` })
  sql("DELETE FROM items WHERE id = 1")
  await shows("a deleted row goes", ["Call Ann & Bob/done", "Water the plants/done", "Try 'thalweg'/open"])
  // Longer than a long-poll: the page asks again and misses nothing.
  await page.waitForTimeout(4000)
  sql("BEGIN; INSERT INTO items (title) VALUES ('a'), ('b'); DELETE FROM items WHERE title = 'a'; COMMIT")
  await shows("a transaction is shown as a whole, after a quiet time too", ["Call Ann & Bob/done", "Water the plants/done", "Try 'thalweg'/open", "b/open"])
  check("nothing had to be complained about", complaints.length === 0, complaints.join(" | "))
  sql("TRUNCATE items; INSERT INTO items (title) VALUES ('Anew')")
  await shows("a table that is emptied and filled again is fetched again", ["Anew/open"], 15000)
  check("the page never sees the secret", !asked.some((url) => url.includes("s3cret")) && !(await page.content()).includes("s3cret"))
  check("and asks only its own origin", asked.every((url) => url.startsWith(site) || url.startsWith("data:")), asked.find((url) => !url.startsWith(site)))
} finally {
  await browser.close()
}
process.exit(0)
