use crate::report::Report;

#[tokio::test(flavor = "multi_thread")]
async fn every_classic_scheme_breaks_as_it_is_known_to_and_ours_does_not() {
    let reports = crate::play().await.unwrap();
    let mut printed = Vec::new();
    crate::print(&mut printed, &reports).unwrap();
    let printed = String::from_utf8(printed).unwrap();

    assert!(reports.iter().all(Report::is_as_predicted), "{printed}");
    let (table, rest) = printed.split_once(CLASSIC).expect(&printed);
    assert!(table.ends_with("-\n"), "{printed}");
    let ours = rest.lines().filter(|line| line.starts_with("8 "));
    for line in ours {
        assert!(!line.contains("BROKEN"), "{printed}");
    }
    assert!(
        rest.contains("classic schemes: 9 of 9 broke; polylock: 0 of 9 broke"),
        "{printed}"
    );

    // Where the server forgets the lock, and where the holder is paused, only the token is left.
    for provocation in [
        "fail-over",
        "holder is paused",
        "node restarts empty",
        "renewal fails",
    ] {
        let report = reports
            .iter()
            .find(|report| report.script.rung == "8" && report.script.provocation == provocation);
        let story = report.expect(provocation).to_string();
        assert!(story.contains("A  IS TOLD"), "{story}");
        assert!(story.contains("REFUSED"), "{story}");
    }
}

const CLASSIC: &str = "\
1   SETNX, then EXPIRE        crash between the two     .          .       BROKEN  .       .
2   SETNX + time, GETSET      clocks differ             BROKEN     BROKEN  .       BROKEN  BROKEN
3   SETNX + PEXPIRE in Lua    release is late           BROKEN     BROKEN  .       BROKEN  BROKEN
4   SET EX NX                 work outlives the lock    BROKEN     BROKEN  .       BROKEN  BROKEN
5   SET PX NX, unique value   work outlives the lock    BROKEN     .       .       BROKEN  BROKEN
6   watchdog, count, PUBLISH  watchdog dies             BROKEN     .       .       BROKEN  BROKEN
6   watchdog, count, PUBLISH  fail-over                 BROKEN     .       .       BROKEN  BROKEN
7   quorum (Redlock)          holder is paused          .          .       .       .       BROKEN
7   quorum (Redlock)          node restarts empty       BROKEN     .       .       BROKEN  BROKEN
";
