//! Colours that follow the scheme of the reader: the drawing names an ink, the style sheet its
//! colour.

use std::fmt::Write;

use plotters::style::RGBColor;

/// What a stroke or an area is drawn with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ink {
    /// Dashed lines that belong to no target.
    Dashes,
    /// Lines behind the data.
    Grid,
    /// The limit of a target: its colour, dashed.
    Limit(usize),
    /// Axes, and text that is less important.
    Muted,
    /// The target of that number.
    Target(usize),
    /// Text.
    Text,
}

impl Ink {
    /// How many targets have a colour of their own.
    pub(super) const COLORS: usize = TARGETS.len();

    /// The colour that stands for this ink until [`paint`] replaces it. What no ink was named for
    /// is black, and therefore text.
    pub(super) fn color(self) -> RGBColor {
        let code = match self {
            Self::Text => 0,
            Self::Grid => 1,
            Self::Muted => 2,
            Self::Dashes => 3,
            Self::Target(number) => 0x40 + low(number),
            Self::Limit(number) => 0x80 + low(number),
        };
        RGBColor(code, 0, 0)
    }

    fn of_code(code: u8) -> Self {
        match code {
            1 => Self::Grid,
            2 => Self::Muted,
            3 => Self::Dashes,
            0x40..0x80 => Self::Target(usize::from(code - 0x40)),
            0x80.. => Self::Limit(usize::from(code - 0x80)),
            _ => Self::Text,
        }
    }

    /// The class of the style sheet.
    pub(crate) fn class(self) -> String {
        match self {
            Self::Dashes | Self::Muted => "muted".to_owned(),
            Self::Grid => "grid".to_owned(),
            Self::Limit(number) | Self::Target(number) => format!("t{}", number % TARGETS.len()),
            Self::Text => "text".to_owned(),
        }
    }

    fn light(self) -> &'static str {
        match self {
            Self::Dashes | Self::Muted => MUTED.0,
            Self::Grid => GRID.0,
            Self::Limit(number) | Self::Target(number) => TARGETS[number % TARGETS.len()].0,
            Self::Text => TEXT.0,
        }
    }

    fn is_dashed(self) -> bool {
        matches!(self, Self::Dashes | Self::Limit(_))
    }
}

fn low(number: usize) -> u8 {
    u8::try_from(number % TARGETS.len()).unwrap_or_default()
}

/// Light and dark; told apart by people with any kind of colour vision, and at a contrast of 3 or
/// more to the page.
const TARGETS: [(&str, &str); 8] = [
    ("#0072b2", "#56b4e9"),
    ("#d55e00", "#ff9248"),
    ("#00846b", "#2fd0a5"),
    ("#b0308c", "#f19ad3"),
    ("#5a1212", "#f2f05a"),
    ("#7b61ff", "#8f6bff"),
    ("#828a92", "#b8b8b8"),
    ("#001799", "#e0566f"),
];
const TEXT: (&str, &str) = ("#1b1f24", "#e8eaed");
const MUTED: (&str, &str) = ("#5c6670", "#a3adb8");
const GRID: (&str, &str) = ("#dfe3e8", "#353b43");

/// Replaces the colours of inks by classes, and by the light colour for programs that read no style
/// sheets.
pub(super) fn paint(svg: &str) -> String {
    let mut painted = String::with_capacity(svg.len() * 3 / 2);
    let mut rest = svg;
    // Quotes in text are escaped, so that no text looks like an attribute.
    while let Some(at) = rest.find("=\"#") {
        let (before, after) = rest.split_at(at);
        let code = after
            .get(3..5)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        let ink = Ink::of_code(code.unwrap_or_default());
        let kind = if before.ends_with("fill") { "f" } else { "s" };
        painted += before;
        let (color, class) = (ink.light(), ink.class());
        write!(painted, "=\"{color}\" class=\"{kind} {class}\"").expect("BUG: text can be added");
        if ink.is_dashed() && kind == "s" {
            painted += " stroke-dasharray=\"20 14\"";
        }
        rest = after.get(COLOR..).unwrap_or_default();
    }
    painted + rest
}

/// Length of `="#000000"`.
const COLOR: usize = 10;

/// The style sheet that gives the classes their colours, in both schemes.
pub(crate) fn style() -> String {
    let named = [("text", TEXT), ("muted", MUTED), ("grid", GRID)];
    let named = named.map(|(name, colors)| (name.to_owned(), colors));
    let targets = TARGETS.iter().enumerate();
    let targets = targets.map(|(number, colors)| (format!("t{number}"), *colors));
    let (mut light, mut dark) = (String::new(), String::new());
    for (name, colors) in named.into_iter().chain(targets) {
        light += &format!(".{name}{{--c:{}}}", colors.0);
        dark += &format!(".{name}{{--c:{}}}", colors.1);
    }
    format!(
        "{light}@media(prefers-color-scheme:dark){{{dark}}}.f{{fill:var(--c)}}.s{{stroke:var(--c)}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inks_keep_their_code() {
        let inks = [
            Ink::Dashes,
            Ink::Grid,
            Ink::Limit(7),
            Ink::Muted,
            Ink::Target(3),
            Ink::Text,
        ];
        for ink in inks {
            assert_eq!(Ink::of_code(ink.color().0), ink);
        }
    }

    #[test]
    fn colours_become_classes() {
        let svg = "<line stroke=\"#820000\" x1=\"1\"/><text fill=\"#000000\">=&quot;#820000</text>";
        let expected = "<line stroke=\"#00846b\" class=\"s t2\" stroke-dasharray=\"20 14\" \
                        x1=\"1\"/><text fill=\"#1b1f24\" class=\"f text\">=&quot;#820000</text>";
        assert_eq!(paint(svg), expected);
    }

    #[test]
    fn every_target_has_a_colour() {
        assert_eq!(Ink::Target(8).class(), "t0");
        assert!(style().contains(".t7{--c:"));
    }
}
