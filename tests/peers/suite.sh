#!/usr/bin/env bash
# Other people's clients of the protocol: their own test suites, against the binary. Nothing is downloaded but npm packages: the suites come
# from a checkout of durable-streams/durable-streams. README.md here has the counts that are known.
#
#   tests/peers/suite.sh CHECKOUT
#
# SUITES chooses packages, and `conformance`, the client conformance suite; TESTS a name pattern. ADAPTER is another client's adapter for
# `conformance`, and its arguments (the TypeScript client's by default).
. "$(dirname "$0")/../lib.sh"
CHECKOUT=$(cd "${1:?a checkout of durable-streams/durable-streams}" && pwd) || exit 1
SUITES=${SUITES:-y-durable-streams client state proxy aisdk-transport tanstack-ai-transport conformance}
SERVER_PACKAGE=0.3.7 VITEST_PACKAGE=4.1.12
need_node || { echo "node >= 20 with npm is needed"; exit 1; }
workspace

# ---- their sources beside the packages that they need, and our server in the place of theirs

PACKAGES="client server y-durable-streams state proxy aisdk-transport tanstack-ai-transport client-conformance-tests"
HERE=$CACHE/peers-$(cd "$CHECKOUT/packages" && for p in $PACKAGES; do cat "$p/package.json"; done | cat - "$ROOT/tests/peers/suite.sh" | cksum | cut -d' ' -f1)
mkdir -p "$HERE/packages"
for p in $PACKAGES; do rm -rf "$HERE/packages/$p"; cp -r "$CHECKOUT/packages/$p" "$HERE/packages/"; done
cp "$CHECKOUT/tsconfig.json" "$HERE/"; cp "$ROOT/tests/peers/server.ts" "$HERE/"
if [ ! -e "$HERE/complete" ]; then
  (cd "$HERE" && node -e '
    const [server, vitest, ...packages] = process.argv.slice(1), fs = require("fs"), all = {}
    for (const name of packages) {
      const { dependencies = {}, devDependencies = {}, peerDependencies = {} } = JSON.parse(fs.readFileSync(`packages/${name}/package.json`))
      for (const [of, version] of Object.entries({ ...devDependencies, ...peerDependencies, ...dependencies }))
        if (!version.startsWith("workspace:") && !["@tanstack/intent", "tsdown", "vitest"].includes(of)) all[of] = version
    }
    all["@reference/server"] = `npm:@durable-streams/server@${server}`
    all.vitest = vitest
    fs.writeFileSync("package.json", JSON.stringify({ name: "peers", private: true, type: "module", dependencies: all }))
  ' "$SERVER_PACKAGE" "$VITEST_PACKAGE" $PACKAGES && npm install --no-audit --no-fund --legacy-peer-deps) >"$HERE/install.log" 2>&1 || { tail -5 "$HERE/install.log"; exit 1; }
  touch "$HERE/complete"
fi
cat >"$HERE/stands-in.ts" <<'TS'
export * from "@reference/server"
export { DurableStreamTestServer } from "./server.ts"
TS
cat >"$HERE/vitest.config.mjs" <<'JS'
import { resolve } from "node:path"
const source = (name) => [`@durable-streams/${name}`, resolve(`packages/${name}/src`)]
export default {
  test: { testTimeout: 30000, hookTimeout: 30000, fileParallelism: false },
  resolve: { alias: { ...Object.fromEntries(["client", "state", "proxy"].map(source)), "@durable-streams/server": resolve("stands-in.ts") } },
}
JS
# tsx, which runs the conformance suite, knows packages only.
for of in client:packages/client/src/index.ts server:stands-in.ts; do
  name=$HERE/packages/client-conformance-tests/node_modules/@durable-streams/${of%%:*}; rm -rf "$name"; mkdir -p "$name"
  printf '{"name":"@durable-streams/%s","type":"module","exports":"./index.ts"}' "${of%%:*}" >"$name/package.json"
  printf 'export * from "%s"\n' "$HERE/${of#*:}" >"$name/index.ts"
done

# ---- one after the other

for suite in $SUITES; do
  if [ "$suite" = conformance ]; then
    (cd "$HERE/packages/client-conformance-tests" && npx tsx src/cli.ts --run ${ADAPTER:-ts}) >"$WORK/$suite.log" 2>&1 </dev/null
    grep -E '^ +✗' "$WORK/$suite.log" | sed 's/^ */FAILED  /'
    read -r p f < <(awk '/^ +✓/ {p++} /^ +✗/ {f++} END {print p + 0, f + 0}' "$WORK/$suite.log")
  else
    (cd "$HERE" && npx vitest run "packages/$suite/" ${TESTS:+-t "$TESTS"} --reporter=json --outputFile="$WORK/$suite.json") >"$WORK/$suite.log" 2>&1 </dev/null
    read -r p f < <(node -e '
      const fs = require("fs"), out = process.argv[1]
      if (!fs.existsSync(out)) process.exit(1)
      const report = JSON.parse(fs.readFileSync(out))
      for (const file of report.testResults) {
        if (!file.assertionResults.length) console.error("FAILED  " + file.name + ": " + file.message)
        for (const test of file.assertionResults)
          if (test.status === "failed") console.error("FAILED  " + test.fullName + ": " + (test.failureMessages[0] ?? "").split("\n")[0])
      }
      console.log(report.numPassedTests, report.numFailedTests + report.testResults.filter((file) => !file.assertionResults.length).length)' "$WORK/$suite.json") || p=0 f=1
  fi
  [ "${p:-0}${f:-0}" = 00 ] && { tail -5 "$WORK/$suite.log"; f=1; }
  echo "$suite: $p passed, $f failed"
  PASSED=$((PASSED + p)) FAILED=$((FAILED + f))
done
finish peers
