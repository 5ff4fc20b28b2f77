use super::fixture::report;
use crate::plan::Workload;
use crate::report::{ReadError, Report};

#[test]
fn json_is_read_as_it_was_written() {
    let written = report().to_json();
    let read = Report::from_json(&written.to_string()).unwrap();
    assert!(read.to_json() == written, "it is read as it was written");
    let throughput = &written["series"][0]["figures"]["throughput"];
    assert!(throughput["median"].as_f64().unwrap() > 0.0, "{throughput}");
}

#[test]
fn other_schemas_are_refused_by_their_name() {
    let mut later = report().to_json();
    later["schema"] = "lock-bench/2".into();
    let refused = Report::from_json(&later.to_string()).unwrap_err();
    assert!(refused.to_string().contains("lock-bench/2"), "{refused}");
    assert!(refused.to_string().contains("lock-bench/1"), "{refused}");

    let refused = |text: &str| Report::from_json(text).unwrap_err();
    assert!(matches!(refused("{}"), ReadError::NoReport));
    assert!(matches!(refused("{\"schema\": 1}"), ReadError::NoReport));
    assert!(matches!(refused("schema"), ReadError::NotJson(_)));
    let part = "{\"schema\": \"lock-bench/1\"}";
    assert!(matches!(refused(part), ReadError::NotWhole(_)));
}

#[test]
fn what_a_later_version_adds_is_no_obstacle() {
    let mut value = report().to_json();
    value["later"] = 1.into();
    value["series"][0]["samples"][0]["later"] = 1.into();
    assert!(Report::from_json(&value.to_string()).is_ok());
}

const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror='alert(1)'>\"&<!--";

/// A report in which everything that others write is hostile.
fn hostile() -> Report {
    let mut report = report();
    for target in &mut report.targets {
        target.url = HOSTILE.to_owned();
        target.facts = [(HOSTILE.to_owned(), HOSTILE.to_owned())].into();
        target.findings = vec![HOSTILE.to_owned()];
        if target.name == "memory" {
            target.name = HOSTILE.to_owned();
        }
    }
    for series in &mut report.series {
        if series.target == "memory" {
            series.target = HOSTILE.to_owned();
        }
        for sample in &mut series.samples {
            sample.violations = vec![HOSTILE.to_owned()];
            sample.failures = vec![HOSTILE.to_owned()];
        }
    }
    report.environment.processor = HOSTILE.to_owned();
    report.environment.warnings = vec![HOSTILE.to_owned()];
    report
}

#[test]
fn nothing_of_others_gets_out_of_its_place() {
    let html = hostile().to_html();
    assert_eq!(html.matches("<script").count(), 1, "the data alone");
    assert_eq!(html.matches("</script>").count(), 1);
    assert!(!html.contains("<img"));
    assert!(!html.contains("<!--"));
    for plot in hostile().plots() {
        let svg = plot.to_file();
        assert!(
            !svg.contains("<script") && !svg.contains("<img"),
            "{}",
            plot.name
        );
    }
}

#[test]
fn the_page_has_the_report_in_it() {
    let report = hostile();
    let html = report.to_html();
    let (_, data) = html
        .split_once("<script type=\"application/json\" id=\"report\">")
        .unwrap();
    let (data, _) = data.split_once("</script>").unwrap();
    let read = Report::from_json(data).unwrap();
    assert!(
        read.to_json() == report.to_json(),
        "the data are those of the report"
    );
}

#[test]
fn the_page_asks_nobody_for_anything() {
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
    assert_eq!(
        html.matches("href=").count(),
        html.matches("href=\"data:,\"").count()
    );
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn every_picture_is_drawn_and_has_a_text() {
    let plots = report().plots();
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
        assert!(
            svg.contains("#0072B2") && !svg.contains("NaN"),
            "{}",
            plot.name
        );
        // Bare commands are dashed, by their color.
        assert!(svg.contains("stroke=\"#0072B3\""), "{}", plot.name);
    }
}

#[test]
fn a_report_without_measurements_is_a_page_without_pictures() {
    let mut empty = report();
    for series in &mut empty.series {
        series.samples.clear();
    }
    assert!(empty.plots().is_empty());
    empty.series.clear();
    assert!(empty.tables().is_empty());
    assert!(empty.to_html().contains("Violations: 0."));
}

#[test]
fn violations_are_named_with_their_place() {
    let mut report = report();
    report.series[0].samples[1].violations = vec!["two holders".to_owned()];
    assert_eq!(
        report.violations(),
        ["uncontended of redis, 1 contender: two holders"]
    );
    let html = report.to_html();
    assert!(html.contains("Violations: 1. Do not use this lock."));
    assert_eq!(report.tables()[0].violations, 1);
}

#[test]
fn tables_have_a_line_for_each_target_and_the_columns_that_are_needed() {
    let tables = report().tables();
    let first = &tables[0];
    assert_eq!(
        first.title,
        "uncontended, 1 contender, 3 x 3s: violations 0"
    );
    let targets: Vec<_> = first.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(targets, ["redis", "redis bare", "memory"]);
    assert!(!first.columns.contains(&"Jain"), "{:?}", first.columns);
    assert!(
        first
            .rows
            .iter()
            .all(|row| row.cells.len() == first.columns.len())
    );
    let recovery = tables
        .iter()
        .find(|table| table.title.starts_with("crash-recovery"));
    assert_eq!(
        recovery.unwrap().rows.len(),
        2,
        "the ttl is the target's own"
    );
    let sweep = tables.iter().find(|table| {
        table
            .title
            .starts_with("hold-sweep, 4 contenders, hold 10ms")
    });
    assert!(sweep.unwrap().columns.contains(&"in use"));
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
        assert!(
            answers.contains(conclusion),
            "{conclusion} is not in {answers}"
        );
    }
    assert!(
        !answers.contains("redis bare "),
        "limits do not compete: {answers}"
    );
}

#[test]
fn tables_fit_80_columns_and_lose_no_figure() {
    let mut report = report();
    report.series[0].samples[0].errors = [("unavailable".to_owned(), 3)].into();
    for table in report.tables() {
        let text = table.to_text(|name| format!("a name of more than 32 characters: {name}"));
        let widest = text.lines().map(str::len).max();
        assert!(widest <= Some(80), "{widest:?} columns:\n{text}");
        for column in &table.columns {
            assert!(text.contains(column), "{column} is not in\n{text}");
        }
        for cell in table.rows.iter().flat_map(|row| &row.cells) {
            assert!(text.contains(cell), "{cell} is not in\n{text}");
        }
    }
    let text = report.tables()[0].to_text(str::to_owned);
    assert!(
        text.starts_with("uncontended, 1 contender, 3 x 3s: violations 0\ntarget "),
        "{text}"
    );
    assert!(text.ends_with("\nredis: errors 3\n"), "{text}");
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
    assert_eq!(
        hlog.lines()
            .filter(|line| line.starts_with("Tag=acquire,"))
            .count(),
        3
    );
}

#[test]
fn what_is_checked_by_chance_alone_is_told() {
    let tokens = |workload: Workload, with_token: Option<u64>| {
        let mut report = report();
        for series in &mut report.series {
            if series.workload == workload && series.target == "redis" {
                series
                    .samples
                    .iter_mut()
                    .for_each(|s| s.with_token = with_token);
            }
        }
        report
    };
    let is_noted = |report: &Report| {
        let tables = report.tables();
        let mut rows = tables.iter().flat_map(|table| &table.rows);
        rows.any(|row| {
            row.notes
                .contains("overlaps seen by chance: no token, no hold")
        })
    };
    let contended = tokens(Workload::Contended, Some(0));
    assert!(is_noted(&contended));
    let html = contended.to_html();
    assert!(html.contains("In 1 of the 29 measured series"));
    assert!(html.contains("In what was checked, at no time two holders"));
    assert!(is_noted(&tokens(Workload::OpenLoop, Some(0))));
    for (workload, with_token, why) in [
        (Workload::Contended, Some(9), "it has tokens"),
        (Workload::Contended, None, "nobody said"),
        (Workload::Fairness, Some(0), "it has holds"),
        (Workload::Uncontended, Some(0), "nobody else wants the key"),
    ] {
        assert!(!is_noted(&tokens(workload, with_token)), "{why}");
    }
}

#[test]
fn a_series_without_an_acquisition_is_named() {
    let mut report = report();
    assert_eq!(report.without_acquisitions(), [""; 0]);
    report.series[0].samples[0].acquisitions = 0;
    assert_eq!(report.without_acquisitions(), [""; 0]);
    for sample in &mut report.series[0].samples {
        sample.acquisitions = 0;
    }
    assert_eq!(
        report.without_acquisitions(),
        ["uncontended of redis, 1 contender"]
    );
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
    let tables = report.tables();
    let notes = &tables[0].rows[0].notes;
    assert_eq!(notes, "1 of 4 slices was checked, unserved 5");
    assert!(html.contains(notes));
}
