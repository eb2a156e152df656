// A cluster of the file's own, that may be stopped or filled, and a world of each test's own on it.

import { after, afterEach, before } from "node:test"
import { Cluster } from "./cluster.mjs"
import { World } from "./world.mjs"

export let cluster
export let w

/** To be called once, by the file; settings are those of Postgres. */
export function ownCluster(settings) {
  before(async () => (cluster = await Cluster.start(settings)))
  after(() => cluster?.remove())
  afterEach(async () => {
    await w?.stop()
    w = undefined
  })
}

/** The test's world from here on. */
export const world = async (options = {}) => (w = await World.start({ cluster: cluster.url, ...options }))
