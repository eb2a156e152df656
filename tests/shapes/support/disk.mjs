// A small disk of its own, that can be filled to the last block and emptied again. Needs root.

import { execFileSync } from "node:child_process"
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, statfsSync, writeSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const quietly = (program, ...args) => {
  try {
    execFileSync(program, args, { stdio: "ignore" })
    return true
  } catch {
    return false
  }
}

export class Disk {
  /** ext4 in a file, else memory; undefined if nothing can be mounted. */
  static mount(megabytes) {
    if (process.getuid() !== 0) return undefined
    const folder = mkdtempSync(join(tmpdir(), "thalweg-disk-"))
    const [image, path] = [join(folder, "image"), join(folder, "mounted")]
    mkdirSync(path)
    const ext4 = () => quietly("truncate", "-s", `${megabytes}M`, image) && quietly("mkfs.ext4", "-q", "-m", "0", image) && quietly("mount", "-o", "loop", image, path)
    if (!ext4() && !quietly("mount", "-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", path)) {
      rmSync(folder, { recursive: true, force: true })
      return undefined
    }
    return Object.assign(new Disk(), { folder, path, ballast: join(path, "ballast") })
  }

  free() {
    const { bavail, bsize } = statfsSync(this.path)
    return bavail * bsize
  }

  /** Leaves no block. */
  fill() {
    const file = openSync(this.ballast, "a")
    for (let piece = Buffer.alloc(1 << 20); piece.length >= 512; ) {
      try {
        if (writeSync(file, piece) < piece.length) piece = piece.subarray(0, piece.length / 2)
      } catch (error) {
        if (error.code !== "ENOSPC") throw error
        piece = piece.subarray(0, piece.length / 2)
      }
    }
    closeSync(file)
  }

  /** Frees the filled space. */
  empty() {
    rmSync(this.ballast, { force: true })
  }

  unmount() {
    quietly("umount", this.path) || quietly("umount", "-l", this.path)
    rmSync(this.folder, { recursive: true, force: true })
  }
}
