//! `top`, on a terminal and without one.

use crate::fixture::{LOCKCTL, Place};

#[test]
fn a_lock_is_shown_and_broken_on_a_terminal_that_is_given_back() {
    let place = Place::new();
    let mut holder = place.holder("--note reindex orders/1");
    let _other = place.holder("bills/2");
    let mut top = place.terminal(&format!("stty cols 120 rows 30; {LOCKCTL} top"));
    for part in ["2 held", "orders/1", "reindex"] {
        top.until_prints(part);
    }
    top.enter("/or\r");
    top.until_prints("1 held");
    top.enter("b");
    top.until_prints("take orders/1 from");
    assert!(holder.is_running());
    top.enter("y");
    top.until_prints("orders/1 is broken");
    assert_eq!(holder.ended().code, 79);
    top.enter("q");
    let ended = top.ended();
    assert_eq!(ended.code, 0, "{ended}");
    // Cursor and screen are as before.
    assert!(ended.stdout.contains("\u{1b}[?25h"), "{ended}");
    assert!(ended.stdout.contains("\u{1b}[?1049l"), "{ended}");
}

#[test]
fn a_holder_that_nobody_was_asked_about_keeps_the_lock() {
    let place = Place::new();
    let first = place.holder("k");
    let mut top = place.terminal(&format!("stty cols 120 rows 30; {LOCKCTL} top"));
    top.until_prints("1 held");
    top.enter("b");
    top.until_prints("take k from");
    first.terminate(143);
    let _second = place.holder("k");
    top.enter("y");
    top.until_prints("k has another holder now, nothing is broken");
    top.enter("q");
    top.expect(0);
    assert!(place.is_held("k"), "the next holder has lost the lock");
}

#[test]
fn without_a_terminal_it_names_what_to_use() {
    let place = Place::new();
    for line in ["top", "--format json top"] {
        place.expect(64, line).says(&["use list or watch"]);
    }
}

#[test]
fn a_backend_out_of_reach_is_an_error_and_no_screen() {
    let place = Place::new();
    let line = format!("{LOCKCTL} top --backend redis://127.0.0.1:1");
    let ended = place.terminal(&line).ended();
    assert_eq!(ended.code, 69, "{ended}");
    assert!(!ended.stdout.contains("\u{1b}[?1049h"), "{ended}");
}
