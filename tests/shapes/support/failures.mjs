// Prints the tests that failed in a TAP report of node:test: innermost ones only, with the first lines of their errors.

import { readFileSync } from "node:fs"

const lines = readFileSync(process.argv[2], "utf8").split("\n")
const names = []
for (let i = 0; i < lines.length; i++) {
  const depth = lines[i].search(/\S/)
  const subtest = /^\s*# Subtest: (.*)/.exec(lines[i])
  if (subtest) {
    names.length = Math.floor(depth / 4)
    names[Math.floor(depth / 4)] = subtest[1]
  }
  if (!/^\s*not ok /.test(lines[i])) continue
  const block = []
  for (let j = i + 1; j < lines.length && !/^\s*\.\.\.\s*$/.test(lines[j]); j++) block.push(lines[j])
  const text = block.join("\n")
  if (/failureType: 'subtestsFailed'/.test(text)) continue
  const error = /error: (?:\|-\n([\s\S]*?)\n\s*(?:code|name|expected|stack):|'(.*)'\n)/.exec(text)
  const said = (error?.[1] ?? error?.[2] ?? text).split("\n").map((line) => line.trim()).filter(Boolean).slice(0, 6)
  const name = lines[i].replace(/^\s*not ok \d+ - /, "").replace(/\s*# time=.*/, "")
  console.log(`FAILED  ${[...names.slice(0, Math.floor(depth / 4)), name].join(" > ")}`)
  for (const line of said) console.log(`          ${line.slice(0, 300)}`)
}
