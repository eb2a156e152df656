// ---- figures: how each is made from the samples of now and of a second ago

// A count of a node falls when a unit leaves it.
const rate = (name) => (now, was) => Math.max(0, now[name] - was[name]) / (now.at - was.at)
const gauge = (name) => (now) => now[name]
const per = (above, below) => (now, was) => {
  const count = now[below] - was[below]
  return count > 0 ? (now[above] - was[above]) / count : null
}
// Requests of this page are in the server's count, and are taken out of it again.
const others = (name) => (now, was) => Math.max(0, now[name] - was[name] - (now.own - was.own)) / (now.at - was.at)
// The time under which a share of the appends of the last second stayed: linear within a bucket of the histogram.
const quantile = (share) => (now, was) => {
  const waits = now.buckets.map(([bound, count], n) => [bound, count - (was.buckets[n] ?? [0, 0])[1]])
  const wanted = share * (waits.at(-1)?.[1] ?? 0)
  if (!wanted) return null
  let [lower, below] = [0, 0]
  for (const [bound, count] of waits) {
    if (count >= wanted) return bound === Infinity ? lower : lower + (bound - lower) * (wanted - below) / (count - below)
    ;[lower, below] = [bound, count]
  }
  return lower
}

const scaled = (value, units, base) => {
  let unit = 0
  while (Math.abs(value) >= base && unit < units.length - 1) { value /= base; unit++ }
  const digits = value === 0 || value >= 100 || (unit === 0 && Number.isInteger(value)) ? 0 : value >= 10 ? 1 : 2
  return value.toFixed(digits) + units[unit]
}
const number = (value) => scaled(value, ["", " k", " M", " G"], 1000)
const bytes = (value) => scaled(Math.round(value), [" B", " KiB", " MiB", " GiB", " TiB"], 1024)
const time = (value) => value === 0 ? "0" : value < 1e-3 ? scaled(value * 1e6, [" µs"], 1e9) : value < 1 ? scaled(value * 1e3, [" ms"], 1e9) : scaled(value, [" s"], 1e9)
const each = (form, unit) => (value) => form(value) + unit
const span = (seconds) => {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]
  const found = units.findIndex(([, size]) => seconds >= size), first = found < 0 ? units.length - 1 : found
  return units.slice(first, first + 2).map(([unit, size], n) => `${Math.floor(n ? seconds % units[first][1] / size : seconds / size)} ${unit}`).join(" ")
}

// Each line: name, colour, figure, how it is written.
const CHARTS = [
  ["Appends", "Append requests that were accepted, each second.",
    [["appends", "--blue", rate("thalweg_appends_total"), each(number, "/s")]]],
  ["Append latency", "From the server's reading of an append to its answer, which in durable mode is after the sync. p50: half of the appends of the last second were faster; p99: all but one in a hundred.",
    [["p50", "--teal", quantile(0.5), time], ["p99", "--plum", quantile(0.99), time]]],
  ["Content", "Content of streams that was appended (in), and that was read (out), without heads of requests and answers.",
    [["in", "--blue", rate("thalweg_append_bytes_total"), each(bytes, "/s")], ["out", "--sand", rate("thalweg_read_bytes_total"), each(bytes, "/s")]]],
  ["Settle lag", "Content that is durable in the journal and not in objects yet. It grows and falls: settling moves it every some seconds or megabytes.",
    [["not settled yet", "--sand", gauge("thalweg_settle_lag_bytes"), bytes]]],
]
const SHAPE_CHARTS = [
  ["Changes of Postgres", "Changes of tables that were made for shapes, and how often they were given to one: the second over the first is the fan-out.",
    [["changes", "--blue", rate("thalweg_shape_changes_total"), each(number, "/s")], ["given to shapes", "--plum", rate("thalweg_shape_changes_told_total"), each(number, "/s")]]],
  ["Behind Postgres", "How much of Postgres's log has not been applied yet.",
    [["behind", "--sand", gauge("thalweg_shape_lag_bytes"), bytes]]],
]

const FACTS = [
  ["streams", "Streams that exist.", gauge("thalweg_streams"), number],
  ["connections", "Connections that are open, with those of this page.", gauge("thalweg_connections"), number],
  ["waiting readers", "Long-polls and SSE connections that wait for something to read.", gauge("thalweg_waiters"), number],
  ["requests", "Requests that were answered, without those of this page.", others("thalweg_requests_total"), each(number, "/s")],
  ["time of a sync", "How long the disk took to make a batch durable, on average over the last second.", per("thalweg_journal_sync_seconds_total", "thalweg_journal_syncs_total"), time],
  ["appends per sync", "Changes that one sync made durable together, on average over the last second: the more, the less each costs.", per("thalweg_journal_frames_total", "thalweg_journal_batches_total"), number],
  ["journal held", "Bytes between the beginning of the journal that is still needed and its end.", gauge("thalweg_journal_held_bytes"), bytes],
  ["oldest not settled", "For how long the oldest content that is not settled has waited.", gauge("thalweg_settle_lag_seconds"), time],
  ["runs", "Pieces that settled data lies in; merging keeps them few, so that a read looks in few places.", gauge("thalweg_runs_max"), number],
  ["objects", "Size of all files of settled data.", gauge("thalweg_object_bytes"), bytes],
  ["write amplification", "Bytes written to the disk for each byte of content that was accepted since the start.", gauge("thalweg_write_amplification"), number],
  ["memory", "Memory of the server's process.", gauge("thalweg_memory_bytes"), bytes],
]
const SHAPE_FACTS = [
  ["shapes", "Live parts of database tables that clients asked for.", gauge("thalweg_shapes"), number],
  ["live clients of shapes", "Requests that wait for the next change of a shape.", gauge("thalweg_shape_live_clients"), number],
  ["Postgres keeps", "Bytes of its log that Postgres keeps because this server may still ask for them.", gauge("thalweg_shape_wal_kept_bytes"), bytes],
  ["rows copied", "Rows that were copied from Postgres for new shapes, each second.", rate("thalweg_shape_rows_copied_total"), each(number, "/s")],
]
