use super::fixture::{report, series};
use crate::plan::Workload;
use crate::report::{Report, Sample};

#[test]
fn json_is_read_as_it_was_written_and_what_is_added_later_is_no_obstacle() {
    let mut written = report().to_json();
    let throughput = &written["series"][0]["figures"]["throughput"];
    assert!(throughput["median"].as_f64() > Some(0.0), "{throughput}");
    let before = written.clone();
    written["later"] = 1.into();
    written["series"][0]["samples"][0]["later"] = 1.into();
    let read = Report::from_json(&written.to_string()).unwrap();
    assert!(read.to_json() == before, "it is read as it was written");
}

#[test]
fn other_schemas_are_refused_by_their_name() {
    let mut later = report().to_json();
    later["schema"] = "lock-bench/2".into();
    for (text, why) in [
        (
            later.to_string().as_str(),
            "the schema is \"lock-bench/2\"; this version reads lock-bench/1",
        ),
        ("{}", "not a report of a benchmark"),
        ("{\"schema\": 1}", "not a report of a benchmark"),
        ("schema", "not JSON"),
        ("{\"schema\": \"lock-bench/1\"}", "not a whole report"),
    ] {
        let refused = Report::from_json(text).unwrap_err().to_string();
        assert!(refused.contains(why), "{text}: {refused}");
    }
}

const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror='alert(1)'>\"&<!--";

/// A report in which everything that others write is hostile.
fn hostile() -> Report {
    let mut report = report();
    let hostile = || HOSTILE.to_owned();
    for target in &mut report.targets {
        target.url = hostile();
        target.facts = [(hostile(), hostile())].into();
        target.findings = vec![hostile()];
        if target.name == "memory" {
            target.name = hostile();
        }
    }
    for series in &mut report.series {
        if series.target == "memory" {
            series.target = hostile();
        }
        for sample in &mut series.samples {
            sample.violations = vec![hostile()];
            sample.failures = vec![hostile()];
        }
    }
    report.environment.processor = hostile();
    report.environment.warnings = vec![hostile()];
    report
}

#[test]
fn nothing_of_others_gets_out_of_its_place() {
    let report = hostile();
    let html = report.to_html();
    assert_eq!(html.matches("<script").count(), 1, "the data alone");
    assert_eq!(html.matches("</script>").count(), 1);
    assert!(!html.contains("<img") && !html.contains("<!--"));
    for plot in report.plots() {
        let svg = plot.to_file();
        assert!(!svg.contains("<script") && !svg.contains("<img"), "{svg}");
    }
    let (_, data) = html.split_once("json\" id=\"report\">").unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let read = Report::from_json(data).unwrap();
    assert!(
        read.to_json() == report.to_json(),
        "the page has the report in it"
    );
}

#[test]
fn the_page_has_no_external_references() {
    let html = report().to_html();
    for reference in [
        "http:",
        "https:",
        "src=",
        "url(",
        "@import",
        "<link rel=\"style",
    ] {
        assert!(!html.contains(reference), "{reference}");
    }
    let links = html.matches("href=").count();
    assert_eq!(links, html.matches("href=\"data:,\"").count());
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn every_picture_is_drawn_and_has_a_text() {
    let mut report = report();
    // Its median is 0, which has no place on a logarithmic scale.
    let changed = series(&mut report, "redis", Workload::Contended, 8);
    changed.samples[1..]
        .iter_mut()
        .for_each(|s| s.acquisitions = 0);
    let plots = report.plots();
    let names: Vec<_> = plots.iter().map(|plot| plot.name.as_str()).collect();
    let expected = [
        "throughput-contended",
        "throughput-uncontended",
        "acquire-uncontended",
        "acquire-contended",
        "acquire-open-loop",
        "hand-off",
        "fairness",
    ];
    assert_eq!(names, expected);
    for plot in plots {
        assert!(plot.alt.contains("redis"), "{}: {}", plot.name, plot.alt);
        let svg = plot.to_file();
        // Redis, its bare commands in the same color and dashed, and memory.
        for class in [" t0\"", " t0 bare\"", " t1\""] {
            assert!(svg.contains(class), "{class} is not in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn a_report_without_measurements_is_a_page_without_pictures() {
    let mut empty = report();
    empty
        .series
        .iter_mut()
        .for_each(|series| series.samples.clear());
    assert!(empty.plots().is_empty());
    empty.series.clear();
    assert!(empty.tables().is_empty());
    assert!(empty.to_html().contains("Violations: 0."));
}

#[test]
fn violations_are_named_with_their_place() {
    let mut report = report();
    report.series[0].samples[1].violations = vec!["two holders".to_owned()];
    let named = "uncontended of redis, 1 contender: two holders";
    assert_eq!(report.violations(), [named]);
    let html = report.to_html();
    assert!(html.contains("Violations: 1. Do not use this lock."));
    assert_eq!(report.tables()[0].violations, 1);
}

#[test]
fn tables_have_a_line_for_each_target_and_the_columns_that_are_needed() {
    let tables = report().tables();
    let beginning = |text: &str| {
        let mut tables = tables.iter();
        tables.find(|table| table.title.starts_with(text)).unwrap()
    };
    let first = beginning("uncontended, 1 contender, 3 x 3s: violations 0");
    let targets: Vec<_> = first.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(targets, ["redis", "redis bare", "memory"]);
    assert!(!first.columns.contains(&"Jain"), "{:?}", first.columns);
    let recovery = beginning("crash-recovery");
    assert_eq!(recovery.rows.len(), 2, "the ttl is the target's own");
    let sweep = beginning("hold-sweep, 4 contenders, hold 10ms");
    assert!(sweep.columns.contains(&"in use"));
}

#[test]
fn the_page_begins_with_a_conclusion_for_each_workload() {
    let html = report().to_html();
    let (_, answers) = html.split_once("<ul class=\"answers\">").unwrap();
    let (answers, _) = answers.split_once("</ul>").unwrap();
    for conclusion in [
        "<strong>uncontended</strong> best: memory 317,460 acquisitions/s; worst: redis 5,291 \
         acquisitions/s, 1.64 times as long as bare commands (1 contender).",
        "<strong>hand-off</strong> best: memory",
        "<strong>fairness</strong>",
        "<strong>hold-sweep</strong>",
        "<strong>open-loop</strong> best: memory 99 % served within",
        "<strong>crash-recovery</strong>",
    ] {
        assert!(answers.contains(conclusion), "no {conclusion} in {answers}");
    }
    assert!(
        !answers.contains("redis bare "),
        "limits do not compete: {answers}"
    );
}

#[test]
fn a_target_with_faults_is_not_the_best_one() {
    type Fault = fn(&mut Sample);
    let cases: [(Fault, &str); 4] = [
        (|s| s.errors = [("lost".to_owned(), 3)].into(), "errors 3"),
        (|s| s.violations = vec!["two".to_owned()], "VIOLATIONS 1"),
        (|s| s.is_saturated = true, "saturated"),
        (|s| s.acquisitions = 0, "repeats without an acquisition 1"),
    ];
    for (fault, told) in cases {
        let mut report = report();
        fault(&mut series(&mut report, "memory", Workload::Uncontended, 1).samples[1]);
        let html = report.to_html();
        let (_, answer) = html.split_once("<strong>uncontended</strong> ").unwrap();
        let (answer, _) = answer.split_once("</li>").unwrap();
        assert!(answer.starts_with("best: redis 5,291 acq"), "{answer}");
        let worst = format!(" acquisitions/s, {told} (1 contender).");
        assert!(answer.contains("; worst: memory 3"), "{answer}");
        assert!(answer.ends_with(&worst), "{answer}");
    }
}

#[test]
fn tables_fit_80_columns_and_lose_no_figure() {
    let mut report = report();
    report.series[0].samples[0].errors = [("unavailable".to_owned(), 3)].into();
    series(&mut report, "redis", Workload::HandOff, 8).samples[0].checked_of = 4;
    for table in report.tables() {
        let text = table.to_text(|name| format!("a name of more than 32 characters: {name}"));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let mut columns = table.columns.iter();
        assert!(columns.all(|column| text.contains(column)), "{text}");
        let mut cells = table.rows.iter().flat_map(|row| &row.cells);
        assert!(cells.all(|cell| text.contains(cell)), "{text}");
    }
    let text = report.tables()[0].to_text(str::to_owned);
    let title = "uncontended, 1 contender, 3 x 3s: violations 0\ntarget ";
    assert!(text.starts_with(title), "{text}");
    assert!(text.ends_with("\nredis: errors 3\n"), "{text}");
    let mut rows = report.tables().into_iter().flat_map(|table| table.rows);
    let note = "1 of 4 slices was checked, hand-offs of 8.4 ms and more are left out";
    assert!(rows.any(|row| row.notes == note));
}

#[test]
fn histograms_are_files_of_the_usual_tools() {
    let files = report().hdr_files();
    let file = |name: &str| {
        let file = files.iter().find(|file| file.name == name);
        &file.unwrap_or_else(|| panic!("no {name}")).text
    };
    let hgrm = file("001-uncontended-redis-1-acquire.hgrm");
    assert!(hgrm.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n"));
    assert!(hgrm.contains("Total count    =          300]"), "{hgrm}");
    let hlog = file("001-uncontended-redis-1.hlog");
    let intervals = hlog.lines().filter(|line| line.starts_with("Tag=acquire,"));
    assert_eq!(intervals.count(), 3);
}

#[test]
fn what_is_checked_by_chance_alone_is_told() {
    use Workload::{Contended, Fairness, OpenLoop, Uncontended};
    for (workload, contenders, with_token, is_told) in [
        (Contended, 8, Some(0), true),
        (OpenLoop, 1, Some(0), true),
        // It has tokens; unknown; it has holds; no other contender for the key.
        (Contended, 8, Some(9), false),
        (Contended, 8, None, false),
        (Fairness, 8, Some(0), false),
        (Uncontended, 8, Some(0), false),
    ] {
        let mut report = report();
        report.series.retain(|series| series.target == "redis");
        let changed = series(&mut report, "redis", workload, contenders);
        changed
            .samples
            .iter_mut()
            .for_each(|s| s.with_token = with_token);
        let (tables, html) = (report.tables(), report.to_html());
        let mut rows = tables.iter().flat_map(|table| &table.rows);
        let note = "overlaps seen by chance: no token, no hold";
        let told = [
            rows.any(|row| row.notes.contains(note)),
            html.contains("In 1 of the 10 measured series"),
            html.contains("In what was checked, at no time two holders"),
        ];
        assert_eq!(told, [is_told; 3], "{workload:?} {with_token:?}");
    }
}

#[test]
fn what_was_not_checked_and_not_served_is_told() {
    let mut report = report();
    let html = report.to_html();
    assert!(html.contains("At no time two holders") && !html.contains("Not all was checked"));
    report.series[0].samples[1].checked_of = 4;
    report.series[0].samples[1].unserved = 3;
    report.series[0].samples[2].unserved = 2;
    let html = report.to_html();
    assert!(html.contains("kept 1 of 4 slices of the time"));
    assert!(!html.contains("At no time two holders"));
    let notes = &report.tables()[0].rows[0].notes;
    assert_eq!(notes, "1 of 4 slices was checked, unserved 5");
    assert!(html.contains(notes));
}
