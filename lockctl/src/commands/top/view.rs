//! What is on the screen, and what keys do to it.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime};

use anstyle::Style;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use polylock::LockKey;
use polylock::admin::LockInfo;

use super::SortBy;
use crate::commands::break_lock::{HolderIds, holder_ids};
use crate::output::{BOLD, age, escaped, locks_screen, who};
use crate::pattern::Pattern;

/// The locks, their order, and what the user is about to do.
#[derive(Debug)]
pub(super) struct View {
    filter: String,
    sort: SortBy,
    is_reversed: bool,
    locks: Vec<LockInfo>,
    /// The lock that is selected, which keeps its mark when the order changes.
    selected: Option<LockKey>,
    prompt: Prompt,
    /// What the last key has done, until the next one.
    notice: Option<String>,
    /// Why the locks could not be listed the last time.
    failure: Option<String>,
}

#[derive(Debug)]
enum Prompt {
    None,
    /// The filter as it is typed.
    Filter(String),
    /// Whether this lock is to be broken, with the holders of that time.
    Break(LockInfo),
}

/// What a key asks of the backend, or of the program.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Action {
    None,
    /// Breaks the lock if these are its holders.
    Break(LockKey, HolderIds),
    Filter,
    Quit,
}

const INVERTED: Style = Style::new().invert();

impl View {
    pub(super) fn new(filter: &str, sort: SortBy) -> Self {
        Self {
            filter: filter.to_owned(),
            sort,
            is_reversed: false,
            locks: Vec::new(),
            selected: None,
            prompt: Prompt::None,
            notice: None,
            failure: None,
        }
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    /// Shows the locks that are held now.
    pub(super) fn show(&mut self, locks: Vec<LockInfo>) {
        self.locks = locks;
        self.failure = None;
        self.arrange();
    }

    /// Keeps what is shown, although the locks could not be listed.
    pub(super) fn fail(&mut self, why: String) {
        self.failure = Some(why);
    }

    pub(super) fn notice(&mut self, text: impl Into<String>) {
        self.notice = Some(text.into());
    }

    /// Does what a key stands for.
    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Action::Quit,
            KeyCode::Char(_) if is_control => return Action::None,
            _ => {}
        }
        self.notice = None;
        match std::mem::replace(&mut self.prompt, Prompt::None) {
            Prompt::None => self.press_in_table(key.code),
            Prompt::Filter(text) => self.press_in_filter(text, key.code),
            Prompt::Break(lock) => match key.code {
                KeyCode::Char('y' | 'Y') => {
                    let holders = holder_ids(&lock);
                    Action::Break(lock.key, holders)
                }
                _ => {
                    self.notice("declined, nothing is broken");
                    Action::None
                }
            },
        }
    }

    fn press_in_table(&mut self, key: KeyCode) -> Action {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    SortBy::Age => SortBy::Key,
                    SortBy::Key => SortBy::Waiters,
                    SortBy::Waiters => SortBy::Age,
                };
                self.arrange();
            }
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.arrange();
            }
            KeyCode::Char('/') => self.prompt = Prompt::Filter(self.filter.clone()),
            KeyCode::Char('b') => {
                if let Some(lock) = self.selected() {
                    self.prompt = Prompt::Break(lock.clone());
                }
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(|at| at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.select(|at| at.saturating_sub(1)),
            KeyCode::Home => self.select(|_| 0),
            KeyCode::End => self.select(|_| usize::MAX),
            _ => {}
        }
        Action::None
    }

    fn press_in_filter(&mut self, mut text: String, key: KeyCode) -> Action {
        match key {
            KeyCode::Enter => {
                self.filter = text;
                self.arrange();
                return Action::Filter;
            }
            KeyCode::Esc => return Action::None,
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) => text.push(c),
            _ => {}
        }
        self.prompt = Prompt::Filter(text);
        Action::None
    }

    fn arrange(&mut self) {
        let pattern = Pattern::new(&self.filter);
        self.locks.retain(|lock| pattern.matches(lock.key.as_str()));
        self.locks.sort_by(|a, b| a.key.cmp(&b.key));
        match self.sort {
            SortBy::Age => self.locks.sort_by_key(|lock| Reverse(held_for(lock))),
            SortBy::Key => {}
            SortBy::Waiters => self.locks.sort_by_key(|lock| Reverse(waiters(lock))),
        }
        if self.is_reversed {
            self.locks.reverse();
        }
        if self.selected().is_none() {
            self.selected = self.locks.first().map(|lock| lock.key.clone());
        }
    }

    fn selected(&self) -> Option<&LockInfo> {
        let selected = self.selected.as_ref()?;
        self.locks.iter().find(|lock| lock.key == *selected)
    }

    fn select(&mut self, to: impl FnOnce(usize) -> usize) {
        let is_selected = |lock: &LockInfo| Some(&lock.key) == self.selected.as_ref();
        let at = self.locks.iter().position(is_selected).unwrap_or(0);
        let last = self.locks.len().saturating_sub(1);
        let lock = self.locks.get(to(at).min(last));
        self.selected = lock.map(|lock| lock.key.clone());
    }

    /// The lines of a screen of this size; styled text is not counted in their length.
    pub(super) fn frame(&self, backend: &str, columns: u16, rows: u16) -> Vec<String> {
        let waiting: usize = self.locks.iter().map(waiters).sum();
        let order = match (self.sort, self.is_reversed) {
            (SortBy::Age, false) => "longest held first",
            (SortBy::Age, true) => "shortest held first",
            (SortBy::Key, false) => "by key",
            (SortBy::Key, true) => "by key, reversed",
            (SortBy::Waiters, false) => "most waiters first",
            (SortBy::Waiters, true) => "fewest waiters first",
        };
        let mut title = format!(
            "{}: {} held, {waiting} waiting, {order}",
            escaped(backend),
            self.locks.len()
        );
        if !self.filter.is_empty() {
            title += &format!(", filter {}", escaped(&self.filter));
        }
        let mut table = locks_screen(&self.locks, columns).into_iter();
        let head = table.next().unwrap_or_default();
        let rows = usize::from(rows);
        // One line each for the title, the head of the table and the message below it.
        let room = rows.saturating_sub(3).max(1);
        let holders = self.locks.iter().flat_map(|lock| {
            let is_selected = Some(&lock.key) == self.selected.as_ref();
            lock.holders.iter().map(move |_| is_selected)
        });
        let body: Vec<_> = holders.zip(table).collect();
        let selected = body.iter().position(|(is_selected, _)| *is_selected);
        let first = (selected.unwrap_or(0) + 1).saturating_sub(room);
        let mut lines = vec![cut(&title, columns)];
        lines.push(format!("{BOLD}{}{BOLD:#}", cut(&head, columns)));
        for (is_selected, line) in body.into_iter().skip(first).take(room) {
            let line = cut(&line, columns);
            lines.push(match is_selected {
                true => format!("{INVERTED}{line}{INVERTED:#}"),
                false => line,
            });
        }
        lines.resize(rows.saturating_sub(1).max(2), String::new());
        lines.push(cut(&self.status(), columns));
        lines
    }

    fn status(&self) -> String {
        match (&self.prompt, self.failure.as_ref().or(self.notice.as_ref())) {
            (Prompt::Filter(text), _) => format!("filter: {}_", escaped(text)),
            (Prompt::Break(lock), _) => {
                let holders = lock.holders.iter();
                let holders: Vec<_> = holders.map(|holder| who(&holder.label)).collect();
                let (key, holders) = (escaped(lock.key.as_str()), holders.join(", "));
                format!("take {key} from {holders}? [y/N]")
            }
            (Prompt::None, Some(notice)) => notice.clone(),
            (Prompt::None, None) => {
                "q quit   s sort   r reverse   / filter   b break   arrows select".to_owned()
            }
        }
    }
}

/// How long its oldest holder has it.
fn held_for(lock: &LockInfo) -> Duration {
    let since: Option<SystemTime> = lock.holders.iter().filter_map(|holder| holder.since).min();
    since.map_or(Duration::ZERO, age)
}

fn waiters(lock: &LockInfo) -> usize {
    lock.waiters.as_ref().map_or(0, Vec::len)
}

fn cut(line: &str, columns: u16) -> String {
    line.chars().take(usize::from(columns)).collect()
}

#[cfg(test)]
mod tests {
    use polylock::admin::HolderInfo;
    use polylock::{FencingToken, Label, Mode};

    use super::*;

    fn lock(key: &str, seconds: u64, waiters: usize) -> LockInfo {
        let label = "host=etl&pid=7&user=deploy&note=reindex the whole archive";
        let mut holder = HolderInfo::new(Label::decode(label));
        holder.token = Some(FencingToken::new(1_795_472_367_870_342));
        holder.time_left = Some(Duration::from_secs(27));
        holder.since = Some(SystemTime::now() - Duration::from_secs(seconds));
        let key = LockKey::new(key).unwrap();
        let waiters = vec![Label::decode("host=web&pid=8"); waiters];
        LockInfo::new(key, Mode::Exclusive, vec![holder]).with_waiters(waiters)
    }

    fn view() -> View {
        let mut view = View::new("", SortBy::Age);
        view.show(vec![lock("b", 5, 1), lock("a", 90, 0), lock("c", 60, 3)]);
        view
    }

    fn press(view: &mut View, keys: &str) -> Action {
        let mut action = Action::None;
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{7f}' => KeyCode::Backspace,
                key => KeyCode::Char(key),
            };
            action = view.press(KeyEvent::new(code, KeyModifiers::NONE));
        }
        action
    }

    fn keys(view: &View) -> String {
        view.locks.iter().map(|lock| lock.key.as_str()).collect()
    }

    #[test]
    fn locks_are_sorted_by_each_column_in_both_directions() {
        let mut view = view();
        for (pressed, expected) in [
            ("", "acb"),
            ("r", "bca"),
            ("rs", "abc"),
            ("r", "cba"),
            ("rs", "cba"),
            ("s", "acb"),
        ] {
            assert_eq!(press(&mut view, pressed), Action::None);
            assert_eq!(keys(&view), expected, "after {pressed:?}");
        }
    }

    #[test]
    fn a_lock_is_broken_after_a_yes_alone() {
        let mut view = view();
        let of = |name: &str| {
            let holders = holder_ids(&lock(name, 0, 0));
            Action::Break(LockKey::new(name).unwrap(), holders)
        };
        assert_eq!(press(&mut view, "b"), Action::None);
        assert!(view.status().starts_with("take a from etl pid 7?"));
        assert_eq!(press(&mut view, "n"), Action::None);
        assert_eq!(press(&mut view, "b\n"), Action::None);
        assert_eq!(press(&mut view, "jby"), of("c"));
        // The mark stays on its lock when the others change.
        view.show(vec![lock("d", 500, 0), lock("c", 60, 3)]);
        assert_eq!(press(&mut view, "by"), of("c"));
        view.show(vec![lock("d", 500, 0)]);
        assert_eq!(press(&mut view, "b"), Action::None);
        // The answer is about the holder that was shown.
        let mut next = lock("d", 0, 0);
        next.holders[0].token = None;
        view.show(vec![next]);
        assert_eq!(press(&mut view, "y"), of("d"));
        view.show(Vec::new());
        assert_eq!(press(&mut view, "by"), Action::None);
    }

    #[test]
    fn a_filter_is_typed_and_taken_back() {
        let mut view = view();
        assert_eq!(press(&mut view, "/x\u{7f}b\n"), Action::Filter);
        assert_eq!((keys(&view).as_str(), view.filter()), ("b", "b"));
        assert_eq!(press(&mut view, "/c\u{1b}"), Action::None);
        assert_eq!(view.filter(), "b");
        assert_eq!(press(&mut view, "q"), Action::Quit);
    }

    #[test]
    fn a_frame_fits_the_screen_and_shows_the_selected_lock() {
        let mut view = View::new("", SortBy::Key);
        view.show((10..60).map(|n| lock(&format!("k{n}"), n, 0)).collect());
        for (columns, rows) in [(80, 24), (40, 6), (10, 3), (1, 1)] {
            let frame = view.frame("redis", columns, rows);
            assert!(frame.len() <= usize::from(rows.max(3)), "{frame:#?}");
            let plain = |line: &str| anstream::adapter::strip_str(line).to_string();
            let widest = frame.iter().map(|line| plain(line).chars().count()).max();
            assert!(widest <= Some(usize::from(columns)), "{frame:#?}");
        }
        press(&mut view, "jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj");
        let frame = view.frame("redis", 80, 24);
        assert!(frame[0].starts_with("redis: 50 held, 0 waiting, by key"));
        let selected = frame.iter().find(|line| line.contains("\u{1b}[7m"));
        assert!(
            selected.is_some_and(|line| line.contains("k40")),
            "{frame:#?}"
        );
        let (head, first) = (&frame[1], &frame[2]);
        assert!(
            head.contains("KEY") && first.starts_with("k20"),
            "{frame:#?}"
        );
    }
}
