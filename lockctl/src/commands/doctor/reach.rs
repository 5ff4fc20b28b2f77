//! Whether somebody listens where a URL says.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use polylock::Finding;
use tokio::sync::oneshot;

use super::service::{Needed, Place};
use crate::text::human;

/// Tries each place by itself, and says which ones take connections.
pub(super) async fn reach(places: &[Place], needed: Needed) -> Vec<Finding> {
    let mut asked = Vec::new();
    for place in places {
        let (there, place) = (place.clone(), place.clone());
        // The lookup of a name has no limit and cannot be cancelled.
        let answer = in_thread(move || knock(&there));
        asked.push(async move {
            (
                place,
                within(PATIENCE * 2, answer).await.unwrap_or(Answer::Silent),
            )
        });
    }
    let mut answers = Vec::new();
    for answer in asked {
        answers.push(answer.await);
    }
    findings(&answers, needed)
}

/// The first place that takes connections, and whether what listens there answers to TLS.
pub(super) async fn first_asked_for_tls(places: &[Place]) -> Option<(&Place, bool)> {
    for place in places {
        let Place::Tcp { name, port } = place.clone() else {
            continue;
        };
        let asked = in_thread(move || greet(&name, port));
        if let Some(Ok(is_tls)) = within(PATIENCE * 2, asked).await {
            return Some((place, is_tls));
        }
    }
    None
}

/// What became of an attempt to connect.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Answer {
    Nameless(String),
    Open(Duration),
    Refused,
    Silent,
    Unreachable(String),
}

fn findings(answers: &[(Place, Answer)], needed: Needed) -> Vec<Finding> {
    let is_open = |answer: &Answer| matches!(answer, Answer::Open(_));
    let open = answers.iter().filter(|(_, answer)| is_open(answer)).count();
    let is_enough = match needed {
        Needed::All => open == answers.len(),
        Needed::One => open > 0,
    };
    let mut found = Vec::new();
    for (place, answer) in answers {
        let what = format!("{place} {answer}");
        found.push(match (answer.advice(), is_enough) {
            (None, _) => Finding::good("reach", what),
            (Some((_, way_out)), true) => Finding::warning("reach", what, ONE_LESS, way_out),
            (Some((why, way_out)), false) => Finding::error("reach", what, why, way_out),
        });
    }
    found
}

impl Answer {
    /// Why it matters, and the way out.
    fn advice(&self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::Nameless(_) => (
                "nothing can be sent to a name without an address, so that there are no locks",
                "correct the host in the URL, or the name service of this machine: `getent hosts \
                 NAME` asks it",
            ),
            Self::Open(_) => return None,
            Self::Refused => (
                "the machine is there, and nobody listens at this port",
                "start the server, correct the port in the URL, or let the server listen at this \
                 address (bind, listen_addresses, bind-address, clientPortAddress)",
            ),
            Self::Silent => (
                "packets vanish: the machine is down, or a firewall drops them; each acquisition \
                 waits for a time-out",
                "correct the address, start the machine, or open the port in firewalls and \
                 security groups on the way",
            ),
            Self::Unreachable(_) => (
                "no connection can be made, so that there are no locks",
                "correct the host in the URL, or the route or the file that leads there",
            ),
        })
    }
}

const ONE_LESS: &str = "the others are fewer to survive the loss of one";

fn knock(place: &Place) -> Answer {
    let began = Instant::now();
    let outcome = match place {
        Place::Socket(path) => UnixStream::connect(path).map(drop),
        Place::Tcp { name, port } => {
            let addresses = match (name.as_str(), *port).to_socket_addrs() {
                Ok(addresses) => addresses.collect::<Vec<_>>(),
                Err(error) => return Answer::Nameless(error.to_string()),
            };
            connect(&addresses).map(drop)
        }
    };
    match outcome {
        Ok(()) => Answer::Open(began.elapsed()),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => Answer::Refused,
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Answer::Silent,
            _ => Answer::Unreachable(error.to_string()),
        },
    }
}

fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Begins a handshake with an empty hello, which a server that speaks TLS answers by an alert; fails
/// if there is no connection.
fn greet(name: &str, port: u16) -> io::Result<bool> {
    let addresses: Vec<_> = (name, port).to_socket_addrs()?.collect();
    let mut stream = connect(&addresses)?;
    let mut kind = [0];
    let answer = stream
        .set_read_timeout(Some(PATIENCE / 2))
        .and_then(|()| stream.write_all(&EMPTY_HELLO))
        .and_then(|()| stream.read_exact(&mut kind));
    Ok(answer.is_ok() && (kind[0] == ALERT || kind[0] == HANDSHAKE))
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;

/// A record of the handshake, TLS 1.0 as all first ones, with a hello of no bytes.
const EMPTY_HELLO: [u8; 9] = [HANDSHAKE, 3, 1, 0, 4, 1, 0, 0, 0];

fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
    let (done, answer) = oneshot::channel();
    // Without a thread there is no answer, as from a server that is silent.
    drop(thread::Builder::new().spawn(move || done.send(work()).is_ok()));
    answer
}

async fn within<T>(time: Duration, answer: oneshot::Receiver<T>) -> Option<T> {
    tokio::time::timeout(time, answer).await.ok()?.ok()
}

/// Time for a connection to be made: a lost packet is sent again after a second.
const PATIENCE: Duration = Duration::from_secs(2);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port } => write!(f, "{name}:{port}"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nameless(why) => write!(f, "has a name that cannot be resolved ({why})"),
            Self::Open(_) => f.write_str("takes connections"),
            Self::Refused => f.write_str("refuses connections"),
            Self::Silent => write!(f, "does not answer within {}", human(PATIENCE)),
            Self::Unreachable(why) => write!(f, "cannot be reached ({why})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use polylock::Verdict;

    use super::*;

    fn tcp(name: &str, port: u16) -> Place {
        let name = name.to_owned();
        Place::Tcp { name, port }
    }

    fn listener() -> (TcpListener, Place) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, tcp("127.0.0.1", port))
    }

    async fn only(place: &Place) -> Finding {
        let found = reach(std::slice::from_ref(place), Needed::All).await;
        let [found] = found.try_into().unwrap();
        found
    }

    #[tokio::test]
    async fn who_listens_is_told_from_who_does_not() {
        let (listener, place) = listener();
        assert_eq!(only(&place).await.verdict, Verdict::Good);
        drop(listener);
        let found = only(&place).await;
        assert_eq!(found.verdict, Verdict::Error);
        assert!(found.what.ends_with("refuses connections"), "{found}");
    }

    #[tokio::test]
    async fn a_name_that_nobody_has_is_told() {
        let found = only(&tcp("no-such-host.invalid", 1)).await;
        assert_eq!(found.verdict, Verdict::Error);
        assert!(found.what.contains("cannot be resolved"), "{found}");
    }

    #[tokio::test]
    async fn a_machine_that_says_nothing_is_told() {
        // A queue that is full lets the kernel drop what comes next.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let full = std::iter::from_fn(|| {
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()
        });
        let _in_the_queue: Vec<_> = full.take(10).collect();
        let found = only(&tcp("127.0.0.1", address.port())).await;
        assert_eq!(found.verdict, Verdict::Error);
        assert!(found.what.ends_with("does not answer within 2s"), "{found}");
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_is_told() {
        let found = only(&Place::Socket("/no/such/socket".into())).await;
        assert!(
            found.what.contains("cannot be reached (No such file"),
            "{found}"
        );
    }

    #[tokio::test]
    async fn where_one_is_enough_the_others_are_a_warning() {
        let (_listener, open) = listener();
        let (_, closed) = listener();
        let found = reach(&[open, closed], Needed::One).await;
        let verdicts: Vec<_> = found.iter().map(|found| found.verdict).collect();
        assert_eq!(verdicts, [Verdict::Good, Verdict::Warning]);
    }

    #[tokio::test]
    async fn an_alert_is_the_answer_of_tls() {
        for (answer, is_tls) in [(&[ALERT, 3, 1][..], true), (b"-ERR", false), (b"", false)] {
            let (listener, place) = listener();
            let server = thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                client.read_exact(&mut [0; EMPTY_HELLO.len()]).unwrap();
                client.write_all(answer).unwrap();
            });
            let places = [
                Place::Socket("/no/such/socket".into()),
                tcp("127.0.0.1", 1),
                place,
            ];
            let asked = first_asked_for_tls(&places).await;
            assert_eq!(asked, Some((&places[2], is_tls)), "{answer:?}");
            server.join().unwrap();
        }
        let closed = [tcp("127.0.0.1", 1)];
        assert_eq!(first_asked_for_tls(&closed).await, None);
    }
}
