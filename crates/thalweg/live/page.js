// ---- the page

const get = (id) => document.getElementById(id)
const make = (parent, tag, text = "", attributes = {}) => {
  const element = document.createElement(tag)
  element.textContent = text
  for (const [name, value] of Object.entries(attributes)) if (value !== "") element.setAttribute(name, value)
  return parent.appendChild(element)
}
const explain = (word, meaning) => { make(get("meanings"), "dt", word); make(get("meanings"), "dd", meaning) }

function makeChart([title, meaning, series]) {
  const card = make(get("charts"), "div", "", { class: "card" })
  const head = make(card, "h2")
  make(head, "b", title, { title: meaning })
  explain(title, meaning)
  const lines = series.map(([name, ink, figure, form]) => {
    const key = make(head, "i", name)
    key.style.setProperty("--ink", `var(${ink})`)
    return { ink, figure, form, output: make(key, "output", "–", { "data-figure": `${title}: ${name}` }), samples: [] }
  })
  return { lines, canvas: make(card, "canvas", "", { role: "img", "aria-label": title }) }
}
function makeFact([name, meaning, figure, form]) {
  const card = make(get("facts"), "div", "", { class: "card", title: meaning })
  make(card, "small", name)
  explain(name, meaning)
  return { figure, form, output: make(card, "output", "–", { "data-figure": name }) }
}
const charts = CHARTS.map(makeChart), facts = FACTS.map(makeFact), lists = [streamList()]

// Shapes and nodes are shown where there are some to show.
const shows = { shapes: false, nodes: false }
function showNodes() {
  shows.nodes = true
  lists.push(new NodeList())
}
function showShapes() {
  shows.shapes = true
  charts.push(...SHAPE_CHARTS.map(makeChart))
  facts.push(...SHAPE_FACTS.map(makeFact))
  lists.push(shapeList())
}

const drawAll = () => charts.forEach(draw)
window.addEventListener("resize", drawAll)
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll)

// ---- samples

// Figures of which the largest of all units counts, and not the sum.
const LARGEST = /_(max|amplification|lag_seconds)$/
function read(text, own) {
  const sample = { at: performance.now() / 1000, own, buckets: [] }, of_units = {}
  for (const line of text.split("\n")) {
    const [, name, labels, value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
    if (name === "thalweg_append_seconds_bucket") {
      const bound = /le="([^"]+)"/.exec(labels)[1]
      sample.buckets.push([bound === "+Inf" ? Infinity : Number(bound), Number(value)])
    } else if (name === "thalweg_info") {
      sample.version = /version="([^"]*)"/.exec(labels)?.[1]
    } else if (name && !labels?.includes('unit="')) { // the figures drawn here are those of the streams' unit, which has no label
      sample[name] = Number(value)
    } else if (name && /unit="u\d+"/.test(labels)) {
      // Streams of a node are in several units.
      of_units[name] = LARGEST.test(name) ? Math.max(of_units[name] ?? 0, Number(value)) : (of_units[name] ?? 0) + Number(value)
    }
  }
  if ("thalweg_node_units" in sample) Object.assign(sample, of_units)
  return sample
}

function say(word, bad) {
  get("state").textContent = word
  get("state").className = bad ? "bad" : ""
}

// ---- a server that asks for a token is told one, once: it is kept for as long as the page is open

let token = "", own = 0
async function ask(path) {
  const answer = await fetch(path, token ? { headers: { authorization: `Bearer ${token}` } } : {})
  own++
  return answer
}
const asked = (status) => {
  say(status === 401 && !token ? "a token is needed" : "this token may not read everything", true)
  get("ask").hidden = false
  get("token").focus()
}
get("ask").addEventListener("submit", (event) => {
  event.preventDefault()
  token = get("token").value.trim()
  get("ask").hidden = true
  for (const list of lists) list.at = 0
  turn()
})

// ---- once a second, while somebody looks

let was = null
async function turn() {
  let now = null
  try {
    // What this page was answered before the server counted.
    const before = own, metrics = await ask("/metrics")
    // Nothing more is asked for until there is a token.
    if ([401, 403].includes(metrics.status)) return asked(metrics.status)
    if (!metrics.ok) throw new Error(`/metrics answers ${metrics.status}`)
    now = read(await metrics.text(), before)
    const health = await ask("/health")
    say(health.ok ? "serving" : (await health.text()).trim(), !health.ok)
    get("version").textContent = now.version ?? ""
    get("uptime").textContent = `up ${span(now.thalweg_uptime_seconds)}`
    if ("thalweg_shapes" in now && !shows.shapes) showShapes()
    if ("thalweg_node_units" in now && !shows.nodes) showNodes()
    lists.forEach((list) => list.look())
  } catch (error) {
    say(error instanceof TypeError ? "no answer" : error.message, true)
  }
  // After a restart counters begin again: there is nothing to compare with.
  if (now && was && now.thalweg_uptime_seconds < was.thalweg_uptime_seconds) was = null
  for (const { figure, form, output, samples } of [...charts.flatMap((chart) => chart.lines), ...facts]) {
    let value = now && (was || figure.length < 2) ? figure(now, was) : null
    if (!Number.isFinite(value)) value = null
    output.textContent = value === null ? "–" : form(value)
    if (samples) {
      const at = now?.at ?? performance.now() / 1000
      samples.push([at, value])
      while (samples[0][0] < at - SECONDS) samples.shift()
    }
  }
  drawAll()
  was = now
  if (document.hidden) document.addEventListener("visibilitychange", turn, { once: true })
  else setTimeout(turn, 1000)
}
turn()
