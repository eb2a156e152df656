// ---- charts: lines over a scale that fits and an axis of time

const SECONDS = 120
// Samples farther apart than this are not joined: the values between them are unknown.
const GAP = 3.5

// The next round number: bytes are counted in powers of two.
const ceiling = (value, ofBytes) => {
  if (ofBytes) return 2 ** Math.ceil(Math.log2(value))
  const power = 10 ** Math.floor(Math.log10(value))
  return [1, 2, 3, 5, 10].find((step) => step * power >= value) * power
}

function draw({ canvas, lines }) {
  const { clientWidth: width, clientHeight: height } = canvas, dots = window.devicePixelRatio || 1
  canvas.width = width * dots
  canvas.height = height * dots
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement)
  const colour = (name) => style.getPropertyValue(name)
  pen.scale(dots, dots)
  const end = performance.now() / 1000
  const most = Math.max(0, ...lines.flatMap((line) => line.samples.map(([, value]) => value ?? 0)))
  const top = most > 0 ? ceiling(most, /B/.test(lines[0].form(most))) : 1
  const left = 74, right = width - 8, bottom = height - 24
  const x = (at) => right - (right - left) * (end - at) / SECONDS, y = (value) => bottom - (bottom - 10) * value / top
  pen.font = "12px system-ui, sans-serif"
  pen.textBaseline = "middle"
  pen.textAlign = "right"
  for (const share of [0, 0.5, 1]) {
    pen.fillStyle = colour("--line")
    pen.fillRect(left, Math.round(y(share * top)), right - left, 1)
    pen.fillStyle = colour("--soft")
    if (most > 0 || share === 0) pen.fillText(lines[0].form(share * top), left - 10, y(share * top))
  }
  for (const ago of right - left < 320 ? [120, 60, 0] : [120, 90, 60, 30, 0]) {
    pen.fillStyle = colour("--line")
    pen.fillRect(Math.round(x(end - ago)), bottom, 1, 5)
    pen.fillStyle = colour("--soft")
    pen.textAlign = ago === 120 ? "left" : ago === 0 ? "right" : "center"
    pen.fillText(ago === 0 ? "now" : ago % 60 ? `−${ago} s` : `−${ago / 60} min`, x(end - ago), bottom + 14)
  }
  for (const line of lines) drawLine(pen, colour(line.ink), line.samples, x, y)
}

function drawLine(pen, ink, samples, x, y) {
  const dot = (at, value, size) => { pen.beginPath(); pen.arc(x(at), y(value), size, 0, 7); pen.fill() }
  pen.strokeStyle = pen.fillStyle = ink
  pen.lineWidth = 1.75
  pen.lineJoin = "round"
  const joined = (n) => n > 0 && n < samples.length && samples[n][1] !== null && samples[n - 1][1] !== null && samples[n][0] - samples[n - 1][0] < GAP
  pen.beginPath()
  samples.forEach(([at, value], n) => {
    if (value === null) return
    if (joined(n)) pen.lineTo(x(at), y(value))
    else pen.moveTo(x(at), y(value))
  })
  pen.stroke()
  // A line of one sample has no length: it is a dot.
  samples.forEach(([at, value], n) => { if (value !== null && !joined(n) && !joined(n + 1)) dot(at, value, 2.5) })
  const [at, value] = samples.at(-1) ?? []
  if (value !== undefined && value !== null) dot(at, value, 3)
}
