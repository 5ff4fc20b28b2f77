//! The words of a message. Pure.

/// The words that a message says, in lower case and in order, without the names in it.
///
/// Hosts, files and users are called what words are called, and that says nothing of an error. A
/// name is in quotes and left out, or has a port, a dot, a hyphen or a slash and is a word of its
/// own, as `tls-proxy:6379` is: not the two words in it.
#[derive(Debug)]
pub(super) struct Words(Vec<String>);

impl Words {
    pub(super) fn of(text: &str) -> Self {
        let text = without_quoted(text).to_lowercase();
        let words = text.split(|c: char| !is_of_a_name(c));
        let words = words.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        let words = words.filter(|word| !word.is_empty());
        Self(words.map(str::to_owned).collect())
    }

    /// Whether these words, with blanks between them, stand there one after the other.
    pub(super) fn say(&self, phrase: &str) -> bool {
        let phrase: Vec<_> = phrase.split(' ').collect();
        self.0.windows(phrase.len()).any(|words| words == phrase)
    }
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || "-_.:/@".contains(c)
}

/// The text with a blank for each piece in quotes; an apostrophe is no quote.
fn without_quoted(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(QUOTES) {
        let (before, quoted) = rest.split_at(at);
        plain.push_str(before);
        let is_inside_a_word = before.ends_with(char::is_alphanumeric);
        let length = match is_inside_a_word {
            true => None,
            false => length_of_quoted(quoted),
        };
        // All quotes are one byte long.
        rest = &quoted[length.unwrap_or(1)..];
        plain.push(' ');
    }
    plain.push_str(rest);
    plain
}

/// How much of a text the piece in quotes is that it begins with; none if the quotes stay open.
fn length_of_quoted(text: &str) -> Option<usize> {
    let (quote, inside) = text.split_at(1);
    let mut lengths = inside.match_indices(quote).map(|(at, _)| at + 2);
    lengths.find(|length| !text[*length..].starts_with(char::is_alphanumeric))
}

const QUOTES: [char; 3] = ['"', '\'', '`'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_words() {
        for (text, said) in [
            ("tls-proxy:6379 did not answer", "did not answer"),
            ("the server is a standby.", "is a standby"),
            ("see /run/tls/redis.sock: broken", "broken"),
            ("tls=on asks for it", "tls on asks"),
            ("Access denied for user 'tls'@'tls' here", "user here"),
        ] {
            assert!(Words::of(text).say(said), "{text}");
        }
        for (text, name) in [
            ("cannot connect to tls-proxy:6379", "tls"),
            ("standby.db.internal:5432 broke", "standby"),
            ("tls:6379 broke", "tls"),
            ("[::1]:6379 or tls@b", "tls"),
            ("/run/tls broke", "tls"),
            ("the table \"public\".\"standby\" is there", "standby"),
            ("it accepts, the acceptable", "table"),
        ] {
            assert!(!Words::of(text).say(name), "{text}");
        }
    }

    #[test]
    fn an_apostrophe_begins_no_name() {
        let words = Words::of("You can't write, the server's a 'b' standby's 'c");
        assert_eq!(
            words.0,
            [
                "you", "can", "t", "write", "the", "server", "s", "a", "standby", "s", "c"
            ]
        );
    }
}
