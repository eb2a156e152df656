// Rows of a shape with sub-queries: each stays while one of the alternatives of the shape's condition holds. Rows name their
// reasons (tags), and events take reasons away or bring them back.

/** The positions and hashes that tags name: "/h" has none at position 0, and h at position 1. */
function* parts(tags) {
  for (const tag of tags ?? []) for (const [position, hash] of tag.split("/").entries()) if (hash !== "") yield [position, hash]
}

export class Tags {
  constructor() {
    this.rows = new Map()
    // The positions that each alternative needs: the same for all rows, known from the first.
    this.alternatives = undefined
  }

  /** A row has come (`fresh`) or changed. */
  row(key, headers, fresh) {
    if (!headers.tags) return
    const known = fresh ? undefined : this.rows.get(key)
    const tags = new Map(known?.tags)
    for (const [position, hash] of parts(headers.removed_tags)) if (tags.get(position) === hash) tags.delete(position)
    for (const [position, hash] of parts(headers.tags)) tags.set(position, hash)
    this.alternatives ??= headers.tags.map((tag) => [...parts([tag])].map(([position]) => position))
    this.rows.set(key, { tags, active: headers.active_conditions ? [...headers.active_conditions] : undefined })
  }

  /** A row is gone. */
  forget(key) {
    this.rows.delete(key)
  }

  /** A `move-in` or `move-out`. Returns the keys of the rows that go by it. */
  event({ event, patterns }) {
    for (const { pos, value } of patterns) {
      for (const row of this.rows.values()) {
        if (row.tags.get(pos) !== value) continue
        if (row.active) row.active[pos] = event === "move-in"
        else if (event === "move-out") row.tags.delete(pos)
      }
    }
    if (event !== "move-out") return []
    const stays = ({ active, tags }) => active ? this.alternatives.some((needed) => needed.every((at) => active[at])) : tags.size > 0
    const gone = [...this.rows].filter(([, row]) => !stays(row)).map(([key]) => key)
    for (const key of gone) this.rows.delete(key)
    return gone
  }
}
