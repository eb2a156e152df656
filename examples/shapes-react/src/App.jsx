import { useShape } from "@electric-sql/react"

export function App() {
  // Rows now, and a new render whenever they change. Values have the types of their columns.
  const { data, isLoading, isError, error } = useShape({ url: `${location.origin}/shapes/items` })

  if (isLoading) return <p className="note">Loading…</p>
  if (isError && data.length === 0) return <p className="note bad">The items cannot be had: {String(error)}</p>

  const items = [...data].sort((a, b) => a.id - b.id)
  const open = items.filter((item) => !item.done).length
  return (
    <main>
      <header>
        <h1>Items</h1>
        <p id="count">
          {open} open of {items.length}
        </p>
      </header>
      <ul>
        {items.map((item) => (
          <li key={item.id} data-id={item.id} className={item.done ? "done" : "open"}>
            <span className="mark" aria-hidden="true">
              {item.done ? "✓" : ""}
            </span>
            <span className="title">{item.title}</span>
          </li>
        ))}
      </ul>
      {items.length === 0 && <p className="note">Nothing to do.</p>}
      <footer>Change the table with SQL and watch.</footer>
    </main>
  )
}
