//! The terminal, as it is while a program fills it.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event};
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use tokio::sync::mpsc::{Receiver, channel};

/// The whole terminal; given back on drop as it was.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        enable_raw_mode()?;
        // From here on, also if the next line fails.
        let screen = Self(());
        execute!(io::stdout(), EnterAlternateScreen, DisableLineWrap, Hide)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (u16, u16) {
        match size() {
            Ok((columns, rows)) if columns > 0 && rows > 0 => (columns, rows),
            _ => (80, 24),
        }
    }

    pub(super) fn draw(&self, lines: &[String]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for (row, line) in (0..).zip(lines) {
            // Before it is written: behind a full line it would erase the last character.
            queue!(out, MoveTo(0, row), Clear(ClearType::CurrentLine))?;
            out.write_all(line.as_bytes())?;
        }
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        drop(execute!(
            io::stdout(),
            Show,
            EnableLineWrap,
            LeaveAlternateScreen
        ));
        drop(disable_raw_mode());
    }
}

/// What the user types, and changes of the size, read by a thread until the receiver is dropped.
pub(super) fn events() -> io::Result<Receiver<Event>> {
    let (sender, receiver) = channel(16);
    thread::Builder::new()
        .name("lockctl-keys".to_owned())
        .spawn(move || {
            while !sender.is_closed() {
                match event::poll(Duration::from_millis(200)) {
                    Ok(false) => {}
                    Ok(true) => match event::read() {
                        Ok(event) => drop(sender.blocking_send(event)),
                        Err(_) => return,
                    },
                    // The terminal is gone.
                    Err(_) => return,
                }
            }
        })?;
    Ok(receiver)
}
