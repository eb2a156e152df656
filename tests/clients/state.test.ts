// The official state protocol package: changes on a stream become the same state at every reader.
import { DurableStream, stream } from "@durable-streams/client"
import { MaterializedState, createStateSchema, type ChangeEvent } from "@durable-streams/state"
import { afterAll, beforeAll, expect, it } from "vitest"
import { Server, until } from "./server.ts"

type User = { id: string; name: string }

const anything = { "~standard": { version: 1 as const, vendor: "test", validate: (value: unknown) => ({ value: value as User }) } }
const schema = createStateSchema({ users: { schema: anything, type: "user", primaryKey: "id" } })
const { users } = schema

let server: Server
beforeAll(async () => {
  server = await Server.start()
})
afterAll(async () => {
  await server.dispose()
})

const changes: ChangeEvent[] = [
  users.insert({ value: { id: "1", name: "Ada" } }),
  users.insert({ value: { id: "2", name: "Grace" } }),
  users.update({ value: { id: "1", name: "Ada Lovelace" } }),
  users.delete({ key: "2" }),
  users.upsert({ value: { id: "3", name: "Edsger" } }),
]

async function materialise(url: string): Promise<MaterializedState> {
  const state = new MaterializedState()
  state.applyBatch(await (await stream<ChangeEvent>({ url, live: false })).json<ChangeEvent>())
  return state
}

function expectFinal(state: MaterializedState): void {
  expect(state.get("user", "1")).toEqual({ id: "1", name: "Ada Lovelace" })
  expect(state.get("user", "2")).toBeUndefined()
  expect([...state.getType("user").keys()].sort()).toEqual(["1", "3"])
}

it("a late reader builds the same state as a live one, and both survive a restart", async () => {
  const url = server.url("state/users")
  const handle = await DurableStream.create({ url, contentType: "application/json" })
  const live = new MaterializedState()
  let applied = 0
  const response = await stream<ChangeEvent>({ url, live: "sse", offset: "-1" })
  response.subscribeJson((batch) => {
    for (const change of batch.items) live.apply(change)
    applied += batch.items.length
  })
  for (const change of changes) await handle.append(JSON.stringify(change))
  await until(() => applied >= changes.length)
  response.cancel()
  expectFinal(live)
  expectFinal(await materialise(url))
  await server.kill()
  await server.restart()
  expectFinal(await materialise(url))
})

it("a batch of changes arrives whole", async () => {
  const url = server.url("state/batch")
  const handle = await DurableStream.create({ url, contentType: "application/json" })
  await Promise.all(changes.map((change) => handle.append(JSON.stringify(change))))
  expectFinal(await materialise(url))
})
