//! Everything that `lockctl` prints: answers on standard output, messages on standard error, events
//! as JSON lines.

mod console;
mod events;
mod text;
mod writer;

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Table, presets};
use polylock::admin::{HolderInfo, LockInfo};
use polylock::coordination::{LastRun, Leader};
use polylock::{Label, Mode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::exit::Exit;

pub(crate) use self::console::{
    BOLD, BOLD_RED, BOLD_YELLOW, CommandFailure, Console, DIM, StatusLine,
};
pub(crate) use self::events::{Events, RenewalEvents};
pub(crate) use self::text::{
    Escaped, address_text, age, clock, escaped, holder_refusing, holder_waited_for, human,
    json_line, last_run_text, millis, names, path_text, quoted, timestamp, unix_ms, who,
};
use self::text::{note, note_after, took};
pub(crate) use self::writer::Writer;

/// Prints an answer on standard output.
/// Errors: if standard output cannot be written to, other than because its reader has seen enough.
pub(crate) fn print(text: &str) -> Result<(), CommandFailure> {
    deliver(text).map(drop)
}

/// Prints an answer that is useless without a reader; false if there is none.
/// Errors: if standard output cannot be written to, other than because its reader is gone.
pub(crate) fn deliver(text: &str) -> Result<bool, CommandFailure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(
            CommandFailure::new(Exit::Internal, "cannot write to standard output").with_cause(&e),
        ),
    }
}

/// Prints lines as they come; true if the reader of standard output is gone, also while there is no
/// line, and false if there are no more lines.
/// Errors: those of [`deliver`].
/// Cancel safety: as for `next`.
pub(crate) async fn follow(
    mut next: impl AsyncFnMut() -> Option<String>,
) -> Result<bool, CommandFailure> {
    loop {
        let line = tokio::select! {
            line = next() => line,
            // `lockctl watch | head -1` has seen enough.
            () = reader_gone() => return Ok(true),
        };
        let Some(line) = line else { return Ok(false) };
        if !deliver(&line)? {
            return Ok(true);
        }
    }
}

async fn reader_gone() {
    while has_reader() {
        sleep(READER_CHECK_INTERVAL).await;
    }
}

fn has_reader() -> bool {
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    // An error and a hang-up are reported always.
    let polled_now = poll(&mut polled, Some(&Timespec::default()));
    let gone = PollFlags::ERR | PollFlags::HUP;
    polled_now.is_err() || !polled[0].revents().intersects(gone)
}

/// Time between two checks whether there is still a reader.
const READER_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Prints one JSON value on a line.
pub(crate) fn print_json(value: &Value) -> Result<(), CommandFailure> {
    print(&json_line(value))
}

/// A lock as JSON.
pub(crate) fn lock_json(info: &LockInfo) -> Value {
    let limit = match info.mode {
        Mode::Permit { limit } => Some(limit.get()),
        _ => None,
    };
    let waiters = info.waiters.as_ref();
    let waiters = waiters.map(|waiters| waiters.iter().map(label_json).collect::<Vec<_>>());
    json!({
        "key": info.key.as_str(),
        "mode": mode_name(info.mode),
        "limit": limit,
        "holders": holders_json(info),
        "waiters": waiters,
    })
}

/// The holders of a lock as JSON.
pub(crate) fn holders_json(info: &LockInfo) -> Value {
    info.holders.iter().map(holder_json).collect()
}

fn holder_json(holder: &HolderInfo) -> Value {
    let mut value = label_json(&holder.label);
    value["token"] = holder.token.map(|token| token.value()).into();
    value["since"] = holder.since.map(timestamp).into();
    value["held_ms"] = holder.since.map(|since| millis(age(since))).into();
    value["lease_left_ms"] = holder.time_left.map(millis).into();
    value
}

/// The leader of an election as JSON.
pub(crate) fn leader_json(leader: &Leader) -> Value {
    let mut value = label_json(&leader.label);
    value["token"] = leader.token.map(|token| token.value()).into();
    value["since"] = leader.since.map(timestamp).into();
    value["address"] = leader.address.as_deref().map(address_text).into();
    value
}

/// The last run of a job as JSON.
pub(crate) fn last_run_json(run: &LastRun) -> Value {
    let mut value = label_json(&run.label);
    value["outcome"] = run.outcome.as_str().into();
    value["started"] = timestamp(run.started).into();
    value["finished"] = timestamp(run.finished).into();
    value["took_ms"] = millis(took(run)).into();
    value
}

/// Empty text and process id 0 stand for what is unknown, and become null.
fn label_json(label: &Label) -> Value {
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({
        "host": known(label.host()),
        "pid": Some(label.pid()).filter(|pid| *pid != 0),
        "user": known(label.user()),
        "program": known(label.program()),
        "note": known(&note(label)),
    })
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Permit { .. } => "permit",
        Mode::Shared => "shared",
        _ => "unknown",
    }
}

fn mode_text(info: &LockInfo) -> String {
    match info.mode {
        Mode::Permit { limit } => format!("permit {}/{limit}", info.holders.len()),
        mode => mode_name(mode).to_owned(),
    }
}

const LOCK_COLUMNS: [&str; 9] = [
    "KEY",
    "MODE",
    "HOLDER",
    "USER",
    "AGE",
    "LEASE LEFT",
    "TOKEN",
    "WAITERS",
    "NOTE",
];

/// The columns that are never wrapped, because they are copied: keys and tokens.
const COPIED: [usize; 2] = [0, 6];

/// The columns that a narrow terminal has no room for, in this order: notes first.
const OMITTED: [usize; 6] = [8, 3, 7, 1, 5, 4];

/// The width at which a column that is wrapped can still be read.
const MIN_COLUMN: u16 = 9;

/// Locks as a table, one line for each holder. On a narrow terminal, columns are wrapped, and some are omitted.
pub(crate) fn locks_table(locks: &[LockInfo]) -> String {
    let mut table = table_of(locks);
    if let Some(columns) = terminal_columns() {
        fit(&mut table, columns);
    }
    flush_left(&mut table)
}

/// Says which columns are shown, and which of them whole, so that lines have that many columns. Where not even
/// the most important ones fit, they are shown alone, and the terminal wraps the lines.
fn fit(table: &mut Table, columns: u16) {
    let needed = |at: usize, content: u16| {
        let least = match COPIED.contains(&at) {
            true => content,
            false => content.min(MIN_COLUMN),
        };
        u32::from(least) + u32::from(PADDING)
    };
    let widths = table.column_max_content_widths();
    let widths = widths.into_iter().enumerate();
    let widths: Vec<_> = widths.map(|(at, content)| needed(at, content)).collect();
    let (mut all, mut omitted) = (widths.iter().sum::<u32>(), 0);
    while all > u32::from(columns) {
        let Some(&next) = OMITTED.get(omitted) else {
            table.set_content_arrangement(ContentArrangement::Disabled);
            break;
        };
        all -= widths[next];
        omitted += 1;
    }
    let hidden = OMITTED.into_iter().take(omitted);
    let hidden = hidden.map(|at| (at, ColumnConstraint::Hidden));
    let copied = COPIED.map(|at| (at, ColumnConstraint::ContentWidth));
    for (at, constraint) in hidden.chain(copied) {
        if let Some(column) = table.column_mut(at) {
            column.set_constraint(constraint);
        }
    }
}

/// The same in lines that are not wrapped but cut, for a screen of that many columns.
pub(crate) fn locks_screen(locks: &[LockInfo], columns: u16) -> Vec<String> {
    let mut table = table_of(locks);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(columns);
    let mut head = Row::from(LOCK_COLUMNS);
    head.max_height(1);
    table.set_header(head);
    for row in table.row_iter_mut() {
        row.max_height(1);
    }
    flush_left(&mut table).lines().map(str::to_owned).collect()
}

fn table_of(locks: &[LockInfo]) -> Table {
    let mut table = plain_table();
    table.set_header(LOCK_COLUMNS);
    for info in locks {
        for holder in &info.holders {
            let waiters = info
                .waiters
                .as_ref()
                .map(|waiters| waiters.len().to_string());
            table.add_row([
                escaped(info.key.as_str()),
                mode_text(info),
                who(&holder.label),
                or_dash(Some(escaped(holder.label.user()))),
                or_dash(holder.since.map(|since| human(age(since)))),
                or_dash(holder.time_left.map(human)),
                or_dash(holder.token.map(|token| token.to_string())),
                or_dash(waiters),
                escaped(&note(&holder.label)),
            ]);
        }
    }
    for column in [4, 5, 6, 7] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Names and values, one for each line of a page.
pub(crate) type Rows = Vec<(&'static str, String)>;

/// One lock in full.
pub(crate) fn lock_rows(info: &LockInfo) -> Rows {
    let mut rows = vec![
        ("key", escaped(info.key.as_str())),
        ("mode", mode_text(info)),
    ];
    for holder in &info.holders {
        rows.push(("holder", who(&holder.label)));
        rows.extend(label_rows(&holder.label));
        rows.extend(holder.since.map(since_row));
        rows.extend(holder.token.map(|token| ("  token", token.to_string())));
        rows.push(("  lease", lease(holder)));
    }
    match &info.waiters {
        Some(waiters) if waiters.is_empty() => rows.push(("waiters", "none".to_owned())),
        Some(waiters) => {
            for (at, waiter) in waiters.iter().enumerate() {
                let name = if at == 0 { "waiters" } else { "" };
                let note = note_after(waiter);
                rows.push((name, format!("{}. {}{note}", at + 1, who(waiter))));
            }
        }
        None => rows.push(("waiters", "unknown to this backend".to_owned())),
    }
    rows
}

/// The leader of an election in full.
pub(crate) fn leader_rows(leader: &Leader) -> Rows {
    let mut rows = vec![("leader", who(&leader.label))];
    rows.extend(label_rows(&leader.label));
    rows.extend(leader.since.map(since_row));
    rows.extend(leader.token.map(|token| ("  token", token.to_string())));
    let address = leader.address.as_deref().map(address_text);
    rows.extend(address.map(|address| ("address", escaped(&address))));
    rows
}

fn label_rows(label: &Label) -> impl Iterator<Item = (&'static str, String)> {
    let rows = [
        ("  user", label.user()),
        ("  program", label.program()),
        ("  note", &note(label)),
    ];
    rows.map(|(name, value)| (name, escaped(value)))
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
}

fn since_row(since: SystemTime) -> (&'static str, String) {
    (
        "  since",
        format!("{} ({})", clock(since), human(age(since))),
    )
}

/// Rows in two columns.
pub(crate) fn rows_page(rows: Rows) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = plain_table();
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    flush_left(&mut table)
}

fn lease(holder: &HolderInfo) -> String {
    match holder.time_left {
        Some(left) => {
            let end = clock(SystemTime::now() + left);
            format!("ends in {}, at {end}, unless it is renewed", human(left))
        }
        None => "no time limit".to_owned(),
    }
}

/// A table without lines.
pub(crate) fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // Without a terminal, lines are for grep.
    if let Some(columns) = terminal_columns() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(columns);
    }
    table
}

/// The columns of the terminal on standard output: its size, or `COLUMNS` where that is unknown, as on a serial
/// console; `None` if there is no terminal, or no limit is known.
fn terminal_columns() -> Option<u16> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    let variable = || std::env::var("COLUMNS").ok()?.parse().ok();
    let known = Some(size.ws_col).filter(|columns| *columns > 0);
    known.or_else(variable).filter(|columns| *columns > 0)
}

/// The space behind a column.
const PADDING: u16 = 2;

/// The lines of a table without space before the first column.
pub(crate) fn flush_left(table: &mut Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, PADDING));
    }
    format!("{}\n", table.trim_fmt())
}

fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty())
        .unwrap_or_else(|| "-".to_owned())
}
