use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, sleep_until};

/// The output of `work`, or `None` if it is not ready by `deadline`. For implementors.
///
/// If the whole runtime was blocked, the reply may be unread in a socket: `work` gets a few more
/// turns before it counts as late.
///
/// # Panics
///
/// Outside a tokio runtime with a timer.
///
/// # Cancel safety
///
/// That of `work`.
pub async fn before<W: Future>(deadline: Instant, work: W) -> Option<W::Output> {
    let (mut work, mut late) = (pin!(work), pin!(sleep_until(deadline)));
    let mut turns = TURNS;
    poll_fn(|cx| {
        if let Poll::Ready(output) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if turns == TURNS && late.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if turns == 0 {
            return Poll::Ready(None);
        }
        turns -= 1;
        // Not a plain wake-up: the runtime looks at its sockets before it comes back to this one.
        pin!(tokio::task::yield_now()).poll(cx).map(|()| None)
    })
    .await
}

const TURNS: u32 = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        let builder = Builder::new_current_thread().enable_all().build();
        builder.expect("a runtime needs an epoll descriptor")
    }

    #[test]
    fn work_is_bounded() {
        runtime().block_on(async {
            let soon = Instant::now() + Duration::from_millis(5);
            assert_eq!(before(soon, std::future::pending::<()>()).await, None);
            assert_eq!(before(soon, async { 1 }).await, Some(1));
        });
    }

    #[test]
    fn an_answer_that_waits_in_a_socket_is_not_late() {
        use std::io::Write;
        use tokio::io::AsyncReadExt;

        runtime().block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let (answer, read) = tokio::sync::oneshot::channel();
            // A task of its own, as the driver of a connection is.
            tokio::spawn(async move {
                let mut byte = [0];
                client.read_exact(&mut byte).await.unwrap();
                answer.send(byte[0]).unwrap();
            });
            let soon = Instant::now() + Duration::from_millis(20);
            let call = tokio::spawn(before(soon, read));
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            server.write_all(b"x").unwrap();
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(call.await.unwrap().unwrap().unwrap(), b'x');
        });
    }
}
