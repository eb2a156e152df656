// A client: Electric's, unchanged, straight to thalweg with a token that the backend gave. Prints its rows whenever they change.
//
//   node client.mjs ann

import { FetchError, Shape, ShapeStream } from "@electric-sql/client"

const backend = process.env.BACKEND ?? "http://127.0.0.1:3000"
const user = process.argv[2] ?? "ann"

let session = await login()
async function login() {
  return (await fetch(backend, { headers: { "x-user": user } })).json()
}

const stream = new ShapeStream({
  url: session.url,
  // The table alone: which rows and columns of it is in the token. A `where` of the client's would narrow that further.
  params: { table: "notes" },
  headers: { authorization: () => `Bearer ${session.token}` },
  onError: async (error) => {
    // 401: the token has expired, or was taken back. Anything else a new token would not help with.
    if (!(error instanceof FetchError) || error.status !== 401) throw error
    session = await login()
    return {}
  },
})

new Shape(stream).subscribe(({ rows }) => console.log(JSON.stringify(rows)))
