//! The figures for a terminal.

use comfy_table::CellAlignment;
use lock_bench::report::Report;

use crate::output::{flush_left, plain_table};
use crate::text::escaped;

/// One table for each workload and its parameters.
pub(super) fn tables(report: &Report) -> String {
    let tables = report.tables().into_iter().map(|figures| {
        let mut table = plain_table();
        let header = std::iter::once("target").chain(figures.columns.iter().copied());
        table.set_header(header);
        for row in figures.rows {
            let cells = row.cells.into_iter().map(|cell| match cell.is_empty() {
                true => "-".to_owned(),
                false => cell,
            });
            table.add_row(std::iter::once(escaped(&row.target)).chain(cells));
        }
        for (at, column) in table.column_iter_mut().enumerate() {
            let is_text = at == 0 || figures.columns.get(at - 1) == Some(&"notes");
            column.set_cell_alignment(match is_text {
                true => CellAlignment::Left,
                false => CellAlignment::Right,
            });
        }
        let (title, violations) = (figures.title, figures.violations);
        format!(
            "{title}: violations {violations}\n{}",
            flush_left(&mut table)
        )
    });
    tables.collect::<Vec<_>>().join("\n")
}
