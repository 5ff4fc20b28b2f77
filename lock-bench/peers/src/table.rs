use std::io::{self, Write};

use lock_bench::report::Table;

/// Columns with two spaces between them, the figures on the right.
pub(crate) fn print(out: &mut impl Write, table: &Table) -> io::Result<()> {
    writeln!(out, "\n{}, violations {}", table.title, table.violations)?;
    let width = |at: usize| {
        let cells = table.rows.iter().map(|row| row.cells[at].len());
        cells
            .chain([table.columns[at].len()])
            .max()
            .unwrap_or_default()
    };
    let names = table.rows.iter().map(|row| row.target.len());
    let first = names.max().unwrap_or_default();
    write!(out, "{:first$}", "")?;
    for (at, column) in table.columns.iter().enumerate() {
        write!(out, "  {column:>0$}", width(at))?;
    }
    writeln!(out)?;
    for row in &table.rows {
        write!(out, "{:first$}", row.target)?;
        for (at, cell) in row.cells.iter().enumerate() {
            write!(out, "  {cell:>0$}", width(at))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
