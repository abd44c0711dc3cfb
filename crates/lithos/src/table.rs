//! Tables on a terminal.

/// Columns as wide as their widest cell, two spaces apart: the first `left` of them to the left, the others to the right.
/// Rows that are too short have empty cells.
pub fn align(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let width =
        |column| rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, width) in widths.iter().enumerate() {
            let cell = cell(row, column);
            line += if column == 0 { "" } else { "  " };
            line +=
                &if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(align(&rows, 1), "a    bb\nccc   d\n");
        assert_eq!(align(&rows, 2), "a    bb\nccc  d\n");
    }

    #[test]
    fn short_rows_have_empty_cells() {
        let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["cc".to_owned()]];
        assert_eq!(align(&rows, 1), "a   b\ncc\n");
    }
}
