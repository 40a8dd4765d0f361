//! HTTP/1.1 server for clients, over TCP or the Unix socket in the data folder, without encryption.
//!
//! Each connection is one task. It reads a request, has it answered, and writes the answer. A request that arrives in
//! one piece is read in one call, and an answer is written in one call. This path has no queue, no lock and no timer,
//! and an idle connection has no buffer. The connection keeps the last head: most clients repeat it, and a repeated
//! head is not parsed again.
//!
//! | file | content |
//! |---|---|
//! | `conn.rs` | connection: read buffer, deadline, detection of a disconnect |
//! | `head.rs` | head of a request |
//! | `body.rs` | body of a request |
//! | `answer.rs`, `date.rs` | response, and its `Date` header |

mod answer;
mod body;
mod conn;
mod date;
mod head;

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use tokio::{net::TcpStream, time::Instant};

use self::{answer::Manner, body::Body};
pub(super) use self::{
    body::{NoBody, SLOWEST},
    head::Head,
};
use crate::{
    listen::{
        http1::conn::{Conn, Over, Socket},
        router::{Step, Whence, enter, refuse, unread},
        workers,
    },
    reply::Reply,
    state::AppState,
};

/// Time that an idle connection is kept open for the next request.
const IDLE: Duration = Duration::from_secs(120);

/// Time that a client has to read the last response, if its request was not read to the end.
const PARTING: Duration = Duration::from_secs(2);

/// Time to send a body after which the head is authenticated again: access may have ended meanwhile.
const RECHECK_AFTER: Duration = Duration::from_secs(1);

/// Serves one TCP connection until it ends, or until `stop`.
pub(super) async fn serve(app: Arc<AppState>, socket: TcpStream, stop: impl Future<Output = ()>) {
    let Ok(from) = socket.peer_addr() else { return };
    // Send small responses at once.
    let _ = socket.set_nodelay(true);
    speak(app, (socket, Whence::Address(from.ip())), stop).await;
}

/// Serves one connection until the client disconnects or until `stop`.
pub(super) async fn speak(
    app: Arc<AppState>,
    (socket, whence): (impl Socket, Whence),
    stop: impl Future<Output = ()>,
) {
    let mut app = workers::own(&app);
    let stall = app.rules.stall;
    let mut line = Conn::new(socket, stall, app.rules.header_limit);
    let first = app.clone();
    let mut stop = Stop { app: &first, stop: pin!(stop), known: false, due: false };
    loop {
        let head = match poll_fn(|cx| stop.poll_head(&mut line, stall, cx)).await {
            Ok(head) => head,
            Err(Over::Gone) => return,
            Err(Over::Bad(bad)) => {
                let refusal = refuse(&app, bad.0, &bad.1);
                let _ = answer::write(&mut line, refusal, Manner::LAST).await;
                return line.part(PARTING).await;
            }
        };
        if let Some(newer) = app.newer() {
            app = workers::own(&newer);
        }
        let mut body = Body::of(&head);
        let answered = take(&app, whence, &mut line, (&head, &mut body)).await;
        let Some(response) = answered else { return };
        let read = body.skip(&mut line).await;
        let keep = head.keep && read && !poll_fn(|cx| Poll::Ready(stop.is_due(cx))).await;
        let manner = Manner::of(&head, keep);
        // The head is kept only if another request can follow soon: the connection stays open and the response is no
        // stream.
        if keep && matches!(response.body(), Reply::Whole(..)) {
            line.keep(head);
        } else {
            drop(head);
        }
        match answer::write(&mut line, response, manner).await {
            Ok(true) => line.give(IDLE),
            Ok(false) if !read => return line.part(PARTING).await,
            Ok(false) | Err(_) => return,
        }
    }
}

/// Answers a request; `None` if the client disconnected.
async fn take(
    app: &Arc<AppState>,
    whence: Whence,
    line: &mut Conn<impl Socket>,
    (head, body): (&Head, &mut Body),
) -> Option<Response<Reply>> {
    let wants = match line.beside(pin!(enter(app, whence, head))).await? {
        Step::Answer(response) => return Some(*response),
        Step::Body(wants) => wants,
    };
    let (limit, begin) = (app.rules.body_limit, Instant::now());
    match body.collect(line, (limit, app.rules.stall)).await {
        Ok(body) if app.newer().is_some() || begin.elapsed() > RECHECK_AFTER => {
            // Boxed because it is rare.
            Box::pin(take_late(app, whence, line, (head, body))).await
        }
        Ok(body) => {
            let doing = pin!(wants.take(app, &head.headers, body));
            line.beside(doing).await
        }
        Err(NoBody::Gone) => None,
        Err(why) => Some(unread(app, &why, limit)),
    }
}

/// Answers a request whose body came slowly, or during a reload. Its head is authenticated and routed again, because the
/// client may have lost access since.
async fn take_late(
    app: &Arc<AppState>,
    whence: Whence,
    line: &mut Conn<impl Socket>,
    (head, body): (&Head, Bytes),
) -> Option<Response<Reply>> {
    let app = app.now();
    match line.beside(pin!(enter(&app, whence, head))).await? {
        Step::Answer(response) => Some(*response),
        Step::Body(wants) => line.beside(pin!(wants.take(&app, &head.headers, body))).await,
    }
}

/// Shutdown signal, after which no further request is served.
struct Stop<'a, S> {
    app: &'a AppState,
    stop: Pin<&'a mut S>,
    /// Whether the waker is registered. After that, the future is not polled again until the gateway stops, because
    /// all connections share it.
    known: bool,
    due: bool,
}

impl<S: Future<Output = ()>> Stop<'_, S> {
    fn is_due(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.due && (!std::mem::replace(&mut self.known, true) || self.app.health.is_stopping())
        {
            self.due = self.stop.as_mut().poll(cx).is_ready();
        }
        self.due
    }

    /// Reads the head of the next request, if the request begins before the shutdown.
    fn poll_head(
        &mut self,
        line: &mut Conn<impl Socket>,
        stall: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<Head>, Over>> {
        let head = line.poll_head(stall, cx);
        if head.is_pending() && self.is_due(cx) && line.came.is_empty() {
            return Poll::Ready(Err(Over::Gone));
        }
        head
    }
}
