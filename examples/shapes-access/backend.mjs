// The backend: identifies a user, and issues a token for the rows that the user may read. Rows never pass through it.
//
//   THALWEG_TOKEN=… node backend.mjs          PORT (3000), THALWEG_SERVER (http://127.0.0.1:4437)

import http from "node:http"

const thalweg = process.env.THALWEG_SERVER ?? "http://127.0.0.1:4437"

// In production: a session, a password, a provider. Here every user name is accepted.
const whoIs = (request) => request.headers["x-user"]

async function tokenFor(user) {
  const answer = await fetch(`${thalweg}/v1/token`, {
    method: "POST",
    headers: { authorization: `Bearer ${process.env.THALWEG_TOKEN}` },
    body: JSON.stringify({
      shape: [{ table: "notes", where: "owner = $1", params: [user], columns: ["id", "owner", "text"] }],
      ttl: process.env.TTL ?? "10min",
    }),
  })
  if (!answer.ok) throw new Error(`thalweg says ${answer.status}: ${await answer.text()}`)
  return (await answer.json()).access_token
}

const server = http.createServer(async (request, response) => {
  const user = whoIs(request)
  if (!user) return response.writeHead(401).end()
  try {
    const session = { token: await tokenFor(user), url: `${thalweg}/v1/shape` }
    response.writeHead(200, { "content-type": "application/json", "cache-control": "no-store" }).end(JSON.stringify(session))
  } catch (error) {
    console.error(error.message)
    response.writeHead(502).end()
  }
})
server.listen(process.env.PORT ?? 3000, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`))
