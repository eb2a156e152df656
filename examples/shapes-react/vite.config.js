import react from "@vitejs/plugin-react"
import { defineConfig } from "vite"

const thalweg = process.env.THALWEG_SERVER ?? "http://127.0.0.1:4437"
const secret = process.env.THALWEG_SHAPE_SECRET

// The work of a backend in production: the page may ask for this one shape, and never sees the secret. A real one would also check which user
// asks, and choose table, where and columns for them.
function items(path) {
  const asked = new URL(path, "http://page").searchParams
  for (const name of ["table", "where", "params", "columns", "secret"]) asked.delete(name)
  asked.set("table", "items")
  if (secret) asked.set("secret", secret)
  return `/v1/shape?${asked}`
}

export default defineConfig({
  plugins: [react()],
  server: { proxy: { "/shapes/items": { target: thalweg, changeOrigin: true, rewrite: items } } },
})
