// ---- lists of streams and of shapes: a page at a time, polled every few seconds

const ROWS = 15
// A page of streams costs the server one pass over all names, so that it is asked for less often the longer that takes.
const EVERY = 5000, PATIENCE = 20

class List {
  // url(after, filter), rows(answer), next(answer); columns: name, meaning, value(row, was, seconds), form, and whether it is a number.
  constructor({ title, columns, url, rows, next, key, hint, filter }) {
    Object.assign(this, { title, columns, url, rows, next, key, hint, pages: [null], before: new Map(), at: 0, wait: EVERY })
    this.card = make(get("lists"), "div", "", { class: "card list" })
    const bar = make(this.card, "div", "", { class: "bar" })
    make(bar, "b", title)
    this.note = make(bar, "small")
    if (filter) {
      this.filter = make(bar, "input", "", { placeholder: filter, "aria-label": filter, size: 16 })
      this.filter.addEventListener("change", () => this.go([null]))
    }
    this.back = make(bar, "button", "‹", { "aria-label": "previous page" })
    this.on = make(bar, "button", "›", { "aria-label": "next page" })
    this.back.addEventListener("click", () => this.go(this.pages.length > 1 ? this.pages.slice(0, -1) : [null]))
    this.on.addEventListener("click", () => this.go([...this.pages, this.following]))
    this.table = make(this.card, "table")
    const head = make(make(this.table, "thead"), "tr")
    for (const { name, meaning, number } of columns) make(head, "th", name, { title: meaning, class: number ? "number" : "" })
    this.body = make(this.table, "tbody")
    this.empty = make(this.card, "p", hint)
    this.back.disabled = this.on.disabled = true
  }

  go(pages) {
    this.pages = pages
    this.before = new Map()
    this.at = 0
    this.look()
  }

  // Asks again if it is time to.
  async look() {
    if (this.busy || performance.now() < this.at) return
    this.busy = true
    const began = performance.now()
    try {
      const answer = await ask(this.url(this.pages.at(-1), this.filter?.value.trim() ?? ""))
      if (!answer.ok) throw new Error(answer.status === 403 ? "the token may not list them" : `refused with ${answer.status}`)
      this.show(await answer.json())
    } catch (error) {
      this.note.textContent = error instanceof TypeError ? "" : error.message
    }
    this.wait = Math.max(EVERY, PATIENCE * (performance.now() - began))
    this.at = performance.now() + this.wait
    this.busy = false
  }

  show(answer) {
    const now = performance.now() / 1000, rows = this.rows(answer)
    const before = this.before
    this.before = new Map()
    this.body.replaceChildren()
    for (const row of rows) {
      const was = before.get(this.key(row))
      this.before.set(this.key(row), { row, at: now })
      const line = make(this.body, "tr")
      for (const { value, form, number, wide, tone } of this.columns) {
        const found = value(row, was?.row, now - (was?.at ?? now))
        const text = found === null || found === undefined ? "–" : form ? form(found) : String(found)
        const cell = make(line, "td", text, { class: number ? "number" : wide ? "wide" : "" })
        if (wide) cell.title = text
        if (tone) cell.classList.add(tone(row))
      }
    }
    this.following = this.next(answer)
    this.on.disabled = this.following === null || this.following === undefined
    this.back.disabled = this.pages.length < 2
    this.table.hidden = rows.length === 0
    this.empty.hidden = rows.length > 0
    const often = `every ${Math.round(this.wait / 1000)} s`
    this.note.textContent = !rows.length ? "" : this.following === null && this.pages.length === 1 ? often : `page ${this.pages.length}, ${often}`
    return rows
  }
}

const ofChange = (value) => (row, was, seconds) => was && seconds > 0 ? Math.max(0, value(row) - value(was)) / seconds : null
const position = (stream) => Number(stream.nextOffset.split("_")[1])
const readable = (name) => { try { return decodeURIComponent(name) } catch { return name } }
const keeps = (stream) => [
  stream.ttl !== undefined && `${span(stream.ttl)} unused`, stream.expiresAt && `until ${stream.expiresAt}`,
  stream.retentionBytes && bytes(stream.retentionBytes), stream.retentionSeconds && span(stream.retentionSeconds),
].filter(Boolean).join(", ") || "all"

const streamList = () => new List({
  title: "Streams", filter: "begins with", hint: "There are no streams of that name, or none yet.", key: (stream) => stream.name,
  url: (after, prefix) => `/v1/stream/__ds/streams?limit=${ROWS}&prefix=${encodeURIComponent(prefix)}${after === null ? "" : `&after=${encodeURIComponent(after)}`}`,
  rows: (answer) => answer.streams, next: (answer) => answer.next,
  columns: [
    { name: "name", meaning: "What follows /v1/stream/ in its URL.", value: (stream) => readable(stream.name), wide: true },
    { name: "size", meaning: "What can be read of it.", value: (stream) => stream.bytes, form: bytes, number: true },
    { name: "in", meaning: "Content appended since the list was last polled, per second.", value: ofChange(position), form: each(bytes, "/s"), number: true },
    { name: "type", meaning: "Its content type.", value: (stream) => stream.contentType, wide: true },
    { name: "state", meaning: "A closed stream takes no more appends.", value: (stream) => stream.closed ? "closed" : "open" },
    { name: "keeps", meaning: "How long it stays if it is not used, until when, or how much of its newest content is kept.", value: keeps },
  ],
})

const shapeList = () => new List({
  title: "Shapes", hint: "No client has asked for a shape yet.", key: (shape) => shape.handle,
  url: (after) => `/v1/admin/shapes?limit=${ROWS}&after=${after ?? 0}`,
  rows: (answer) => answer.shapes, next: (answer) => answer.next,
  columns: [
    { name: "table", meaning: "The table that it is a part of.", value: (shape) => shape.table, wide: true },
    { name: "where", meaning: "Which of its rows.", value: (shape) => shape.where ?? "all rows", wide: true },
    { name: "phase", meaning: "Whether its rows are still being copied.", value: (shape) => shape.phase },
    { name: "rows", meaning: "Rows that were copied for it; not known after a restart.", value: (shape) => shape.snapshot_rows, form: number, number: true },
    { name: "copied", meaning: "Size of those rows.", value: (shape) => shape.snapshot_bytes, form: bytes, number: true },
    { name: "changes", meaning: "Size of the changes after them.", value: (shape) => shape.log_bytes, form: bytes, number: true },
    { name: "in", meaning: "Changes since the list was last polled, per second.", value: ofChange((shape) => shape.log_bytes), form: each(bytes, "/s"), number: true },
    { name: "waiting", meaning: "Clients that wait for its next change.", value: (shape) => shape.waiting, form: number, number: true },
    { name: "idle", meaning: "How long ago a client asked for it.", value: (shape) => shape.idle_ms, form: (ms) => span(ms / 1000), number: true },
  ],
})

// ---- nodes, and the unit that each of them owns

const stateOf = (node) => !node.live ? "gone" : node.draining ? "draining" : "live"
// 0–3 7 9: runs of numbers.
const runs = (numbers) => {
  const found = []
  for (const n of [...numbers].sort((a, b) => a - b)) found.at(-1)?.[1] === n - 1 ? found.at(-1)[1] = n : found.push([n, n])
  return found.map(([from, to]) => from === to ? from : `${from}–${to}`).join(" ") || "none"
}

class NodeList extends List {
  constructor() {
    super({
      title: "Nodes", hint: "This node does not know itself yet: it has just started.", key: (node) => node.instance,
      url: () => "/v1/admin/nodes", rows: (answer) => answer.nodes, next: () => null,
      columns: [
        { name: "node", meaning: "Its name, as given with --node. The one that sent this page is marked.", value: (node) => node.this ? `${node.name} ◂ this one` : node.name, wide: true },
        { name: "address", meaning: "Where the other nodes reach it.", value: (node) => node.address, wide: true },
        { name: "state", meaning: "Whether it lives. One that drains gives its units to the others, and takes none.", value: stateOf, tone: stateOf },
        { name: "heard", meaning: "How long ago it said something new of itself.", value: (node) => node.this ? null : node.heard_ms_ago / 1000, form: (seconds) => seconds < 1 ? "now" : `${span(seconds)} ago`, number: true },
        { name: "owns", meaning: "How many units of streams it says that it owns.", value: (node) => node.units.length, number: true },
        { name: "units", meaning: "The numbers of these units.", value: (node) => runs(node.units), wide: true },
      ],
    })
    this.back.hidden = this.on.hidden = true
    this.units = make(this.card, "ol", "", { class: "units" })
    // Before the streams: whether there is service at all comes first.
    get("lists").prepend(this.card)
  }

  show(answer) {
    super.show(answer)
    const names = new Map(answer.nodes.map((node) => [node.instance, node]))
    const free = answer.units.filter((unit) => unit.owner === null).length
    this.units.replaceChildren()
    for (const { unit, owner } of answer.units) {
      const node = names.get(owner), name = node?.name ?? owner ?? "nobody"
      const cell = make(this.units, "li", "", { title: owner === null ? `Unit ${unit} has no owner now: requests for its streams wait.` : `Unit ${unit} is owned by ${name}.`, class: owner === null ? "free" : node?.this ? "own" : "" })
      make(cell, "small", String(unit))
      make(cell, "span", name)
    }
    this.note.textContent = `${answer.units.length} units, ${free ? `${free} without an owner` : "each with an owner"}; ${this.note.textContent}`
    this.note.className = free ? "bad" : ""
  }
}
