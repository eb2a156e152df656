# Tables of medians from lines `group|round|case|column|metric|value`; see run.sh.
BEGIN { FS = "|" }
!($1 in groups) { groups[$1] = ++group_count; group_name[group_count] = $1 }
!(($1, $3) in cases) { cases[$1, $3] = ++case_count[$1]; case_name[$1, case_count[$1]] = $3 }
$5 == "target" && ($1, $3, $6) in known { next }
$5 == "target" { known[$1, $3, $6]; wanted[$1, $3] = wanted[$1, $3] (wanted[$1, $3] ? " " : "") $6; next }
!(($1, $4) in columns) { columns[$1, $4] = ++column_count[$1]; column_name[$1, column_count[$1]] = $4 }
{
  key = $1 SUBSEP $3 SUBSEP $4 SUBSEP $5
  seen[key]++; values[key, seen[key]] = $6; by_round[key, $2] = $6
  if ($2 > rounds) rounds = $2
}
function median(key,    n, i, j, t, v) {
  n = seen[key]
  if (!n) return ""
  for (i = 1; i <= n; i++) v[i] = values[key, i] + 0
  for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
  return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
function total(key,    i, s) { for (i = 1; i <= seen[key]; i++) s += values[key, i]; return s + 0 }
function cell(g, c, k,    key, ops, cpu, p50, p99, bytes, text, bad) {
  key = g SUBSEP c SUBSEP k SUBSEP
  ops = median(key "ops"); cpu = median(key "cpu"); p50 = median(key "p50"); p99 = median(key "p99"); bytes = median(key "bytes")
  if (g == "memory") return bytes == "" ? "-" : sprintf("%.0f B", bytes)
  if (ops == "" && cpu == "") return "-"
  if (ops != "") text = ops >= 1000 ? sprintf("%.1fk ", ops / 1000) : sprintf("%.0f ", ops)
  text = text "(" (cpu == "" ? "" : sprintf("%.1f µs; ", cpu)) sprintf("%.2f / %.2f)", p50 / 1000, p99 / 1000)
  if (g == "replay" && median(key "mb") != "") text = text sprintf(", %.0f MB/s", median(key "mb"))
  if (g == "creation") text = text sprintf(", %.0f B each", bytes)
  bad = total(key "bad")
  return text (bad > 0 ? " **" bad " bad**" : "")
}
# The ratio of two columns, and the range of the rounds' own.
function ratio(g, c, a, b, m,    x, y, r, i, low, high) {
  x = median(g SUBSEP c SUBSEP a SUBSEP m); y = median(g SUBSEP c SUBSEP b SUBSEP m)
  if (x == "" || y == "" || y == 0) return ""
  low = high = ""
  for (i = 1; i <= rounds; i++) {
    if (!((g, c, a, m, i) in by_round) || by_round[g, c, b, m, i] + 0 == 0) continue
    r = by_round[g, c, a, m, i] / by_round[g, c, b, m, i]
    if (low == "" || r < low) low = r
    if (high == "" || r > high) high = r
  }
  range = low == "" ? "" : sprintf(" (%.2f–%.2f)", low, high)
  return x / y
}
# What the wanted figure is; "" if it was not measured. Sets `range`.
function figure(g, c, kind, m,    i, v, low, high) {
  range = ""
  if (kind == "abs") return median(g SUBSEP c SUBSEP column_name[g, 1] SUBSEP m)
  if (kind == "max") {
    for (i = 1; i <= column_count[g]; i++) {
      v = median(g SUBSEP c SUBSEP column_name[g, i] SUBSEP m)
      if (v == "") continue
      if (low == "" || v < low) low = v
      if (high == "" || v > high) high = v
    }
    return low > 0 ? high / low : ""
  }
  return ratio(g, c, first[g], second[g], m)
}
# Ours first, then the one that it is compared with, whatever the order of measurement was.
function arrange(g,    i, n, k, name) {
  n = split("thalweg|with replays|alone|earlier|peer|1|2|4|node|floor", k, "|")
  split("", name)
  count = 0
  for (i = 1; i <= n; i++) if ((g, k[i]) in columns) name[++count] = k[i]
  for (i = 1; i <= count; i++) column_name[g, i] = name[i]
  column_count[g] = count; first[g] = name[1]; second[g] = name[2]
}
END {
  for (i = 1; i <= group_count; i++) {
    g = group_name[i]; arrange(g)
    printf "\n### %s\n\n| case |", toupper(substr(g, 1, 1)) substr(g, 2)
    for (k = 1; k <= column_count[g]; k++) printf " %s |", column_name[g, k]
    printf " %s | target | holds |\n|---|", g == "append by reactors" ? "largest by smallest" : g == "memory" ? "ours" : first[g] " / " second[g]
    for (k = 1; k <= column_count[g] + 3; k++) printf "---|"
    printf "\n"
    for (j = 1; j <= case_count[g]; j++) {
      c = case_name[g, j]
      printf "| %s |", c
      for (k = 1; k <= column_count[g]; k++) printf " %s |", cell(g, c, column_name[g, k])
      n = split(wanted[g, c], t, " ")
      got = aims = verdicts = ""
      for (w = 1; w <= n; w++) {
        kind = ""; text = t[w]
        if (index(text, ":")) { kind = substr(text, 1, index(text, ":") - 1); text = substr(text, index(text, ":") + 1) }
        at = match(text, /[<>]=/); m = substr(text, 1, at - 1); least = substr(text, at, 1) == ">"; aim = substr(text, at + 2) + 0
        v = figure(g, c, kind, m)
        sep = w > 1 ? "; " : ""
        got = got sep (v == "" ? "-" : sprintf(kind == "abs" ? "%s %.0f" : "%s %.2f", m, v) range)
        aims = aims sep m " " (least ? "≥ " : "≤ ") aim
        verdicts = verdicts sep (v == "" ? "-" : (least ? v >= aim : v <= aim) ? "yes" : "**no**")
      }
      if (n == 0) {
        v = column_count[g] > 1 && g != "memory" ? ratio(g, c, first[g], second[g], "cpu") : ""
        got = v == "" ? "-" : sprintf("cpu %.2f", v) range; aims = verdicts = "-"
      }
      printf " %s | %s | %s |\n", got, aims, verdicts
    }
  }
}
