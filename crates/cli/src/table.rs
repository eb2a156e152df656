//! Lists in columns, for people. Scripts take `--json`.

use crate::human;
use std::io::Write;

/// Rows below a header, written a page at a time. Each column is as wide as its widest cell so far, but for the last,
/// which may be of any length.
pub struct Table<const N: usize> {
    header: Option<[String; N]>,
    rows: Vec<[String; N]>,
    widths: [usize; N],
    /// Columns that are aligned to the right: numbers.
    right: &'static [usize],
}

impl<const N: usize> Table<N> {
    pub fn new(header: [&str; N]) -> Self {
        Self { header: Some(header.map(str::to_owned)), rows: Vec::new(), widths: [0; N], right: &[] }
    }

    /// Aligns these columns to the right.
    pub fn right(mut self, columns: &'static [usize]) -> Self {
        self.right = columns;
        self
    }

    pub fn row(&mut self, cells: [String; N]) {
        // A name or a clause may hold line breaks and other control characters.
        self.rows.push(cells.map(|cell| human::printable(&cell)));
    }

    /// Writes the rows that were added since the last time, below the header if these are the first.
    pub fn write(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows: Vec<[String; N]> = self.header.take().into_iter().chain(self.rows.drain(..)).collect();
        for (at, width) in self.widths.iter_mut().enumerate().take(N.saturating_sub(1)) {
            *width = rows.iter().map(|cells| cells[at].chars().count()).max().unwrap_or(0).max(*width);
        }
        for cells in rows {
            let mut line = String::new();
            for (at, (cell, width)) in cells.iter().zip(self.widths).enumerate() {
                if self.right.contains(&at) {
                    line.push_str(&format!("{cell:>width$}  "));
                } else {
                    line.push_str(&format!("{cell:width$}  "));
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<const N: usize>(table: &mut Table<N>) -> String {
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_stand_below_their_headers_and_pages_below_each_other() {
        let mut table = Table::new(["NAME", "SIZE", "TYPE"]).right(&[1]);
        assert_eq!(text(&mut table), "", "no header without rows");
        table.row(["a".into(), "5 B".into(), "text/plain".into()]);
        table.row(["longer".into(), "10.5 MiB".into(), String::new()]);
        assert_eq!(text(&mut table), "NAME        SIZE  TYPE\na            5 B  text/plain\nlonger  10.5 MiB\n");
        table.row(["b".into(), "6 B".into(), "x".into()]);
        assert_eq!(text(&mut table), "b            6 B  x\n");
    }

    #[test]
    fn a_cell_cannot_pass_for_a_line() {
        let mut table = Table::new(["A", "B"]);
        table.row(["x".into(), "a\n\u{1b}[31mb".into()]);
        let text = text(&mut table);
        assert!(text.lines().count() == 2 && !text.contains('\u{1b}'), "{text}");
    }
}
