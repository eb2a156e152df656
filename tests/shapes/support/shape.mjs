// A shape as a client sees it: rows by key, what the server said, where to go on. Follows the protocol and forgives nothing: an insert of
// a row that is there, an update or delete of one that is not, a header that must be there and is not.

import assert from "node:assert/strict"
import { Tags } from "./tags.mjs"

export class Shape {
  constructor(world, params) {
    this.world = world
    this.params = params
    this.reset()
    this.refetches = 0
  }

  reset() {
    this.handle = undefined
    this.offset = "-1"
    this.cursor = undefined
    this.schema = undefined
    this.upToDate = false
    this.lsn = 0n
    /** key → row */
    this.rows = new Map()
    /** every message since the beginning */
    this.log = []
    /** why rows stay; only for shapes with sub-queries */
    this.tags = new Tags()
  }

  /** One request from here on; takes in what it says. Options: live, within (ms until the request is given up), plus query parameters. */
  async step({ live = false, within, ...extra } = {}) {
    const query = { ...this.params, offset: this.offset, handle: this.handle, ...extra }
    if (live) Object.assign(query, { live: "true", cursor: this.cursor })
    const abort = within ? AbortSignal.timeout(within) : undefined
    let answer
    try {
      answer = await this.world.request(query, { signal: abort })
    } catch (error) {
      if (abort?.aborted) return undefined
      throw error
    }
    this.last = answer
    if (answer.status === 409) {
      assert.deepEqual(answer.body, [{ headers: { control: "must-refetch" } }])
      const next = answer.header("electric-handle")
      assert.notEqual(next, this.handle, "the handle of a refused shape must change")
      this.reset()
      this.refetches++
      return answer
    }
    assert.equal(answer.status, 200, `${answer.status} ${answer.text} for ${JSON.stringify(query)}`)
    this.take(answer, live)
    return answer
  }

  take(answer, live) {
    const handle = answer.header("electric-handle")
    const offset = answer.header("electric-offset")
    assert.ok(handle, "electric-handle")
    assert.ok(offset, "electric-offset")
    if (this.handle !== undefined) assert.equal(handle, this.handle, "the handle stays")
    assert.ok(compareOffsets(offset, this.offset) >= 0, `offset ${offset} after ${this.offset}`)
    if (live) {
      this.cursor = answer.header("electric-cursor")
      assert.match(this.cursor ?? "", /^\d+$/, "electric-cursor")
    } else {
      this.schema = JSON.parse(answer.header("electric-schema"))
    }
    this.handle = handle
    this.offset = offset
    this.upToDate = answer.header("electric-up-to-date") !== null
    const hasData = answer.body.some((message) => message.key !== undefined || message.headers.event)
    if (hasData) assert.equal(answer.header("electric-has-data"), "true")
    const last = answer.body.at(-1)
    assert.equal(this.upToDate, last?.headers.control === "up-to-date", "the header and the last message say whether this is all")
    for (const message of answer.body) this.apply(message)
  }

  apply(message) {
    this.log.push(message)
    const { headers, key } = message
    if (headers.control) {
      if (headers.control === "up-to-date") {
        assert.match(headers.global_last_seen_lsn, /^\d+$/)
        const lsn = BigInt(headers.global_last_seen_lsn)
        // A server that starts again may have read less than before.
        const again = this.starts !== this.world.starts
        this.starts = this.world.starts
        assert.ok(lsn >= this.lsn || again, `the LSN goes back from ${this.lsn} to ${lsn}`)
        this.lsn = lsn
      }
      return
    }
    if (headers.event) {
      for (const gone of this.tags.event(headers)) this.rows.delete(gone)
      return
    }
    switch (headers.operation) {
      case "insert":
        // A row that a move-in brings may be here already for another reason.
        assert.ok(!this.rows.has(key) || headers.is_move_in || this.params.log === "changes_only", `${key} is inserted twice`)
        this.rows.set(key, { ...message.value })
        this.tags.row(key, headers, true)
        break
      case "update":
        assert.ok(this.rows.has(key) || this.params.log === "changes_only", `${key} is updated but not there`)
        this.rows.set(key, { ...this.rows.get(key), ...message.value })
        this.tags.row(key, headers, false)
        break
      case "delete":
        assert.ok(this.rows.has(key) || this.params.log === "changes_only", `${key} is deleted but not there`)
        this.rows.delete(key)
        this.tags.forget(key)
        break
      default:
        assert.fail(`unknown message ${JSON.stringify(message)}`)
    }
  }

  // ---- operations of tests

  /** Reads on, without waiting, until up to date. */
  async sync() {
    for (let step = 0; step < 10000; step++) {
      await this.step()
      if (this.upToDate) return this
    }
    assert.fail("never up to date")
  }

  /** One live request; starts over if the shape is gone. The messages. */
  async live(options = {}) {
    const before = this.log.length
    if (!this.upToDate) await this.sync()
    else await this.step({ live: true, ...options })
    return this.log.slice(Math.min(before, this.log.length))
  }

  /** Live requests until `condition` holds of this shape. */
  async until(condition, { within = 15000 } = {}) {
    const deadline = Date.now() + within
    while (!condition(this)) {
      if (Date.now() > deadline) assert.fail(`not within ${within} ms: ${condition}; rows ${JSON.stringify([...this.rows.values()]).slice(0, 2000)}`)
      await this.live({ within: 3000 })
    }
    return this
  }

  /** Runs `change` and gives the changes (rows and events) that it makes here, until `count` of them are there. */
  async changes(change, count = 1) {
    if (!this.upToDate) await this.sync()
    const from = this.log.length
    const made = () => this.log.slice(from).filter((message) => !message.headers.control)
    const pending = this.step({ live: true })
    await change()
    await pending
    const deadline = Date.now() + 15000
    while (made().length < count || !this.upToDate) {
      if (Date.now() > deadline) assert.fail(`${made().length} of ${count} changes came: ${JSON.stringify(made())}`)
      await this.live({ within: 3000 })
    }
    return made()
  }

  values() {
    return [...this.rows.values()]
  }

  /** Sorted values of one column. */
  column(name) {
    return this.values().map((row) => row[name]).sort()
  }
}

/** -1 < n_m < n_inf < (n+1)_m */
export function compareOffsets(a, b) {
  const parse = (offset) => {
    if (offset === "-1") return [-1n, 0n]
    const [tx, op] = offset.split("_")
    return [BigInt(tx), op === "inf" ? 1n << 70n : BigInt(op)]
  }
  const [x, y] = [parse(a), parse(b)]
  for (const i of [0, 1]) if (x[i] !== y[i]) return x[i] < y[i] ? -1 : 1
  return 0
}
