//! HTTP/1.1 as clients speak it to us, over TCP or the socket in the data folder, and without encryption.
//!
//! A connection is one task, which reads a request, lets it be answered, and writes the answer: what comes in
//! one piece is read in one piece, and an answer goes out in one. There is no queue, no lock and no timer on
//! that way, and a connection that is idle has no buffer. Of what came, it keeps the last head: most clients say the
//! same each time, and that is not read once more.
//!
//! | file | what it is about |
//! |---|---|
//! | `line.rs` | the connection: what comes on it, until when, and whether the client is still there |
//! | `head.rs` | the head of a request |
//! | `body.rs` | its body |
//! | `answer.rs`, `date.rs` | the answer, and the date that it carries |

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

use http::Response;
use tokio::net::TcpStream;

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

/// How long a connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(120);

/// How long a client that was told something has to read it, if it did not read to the end of what it sent.
const PARTING: Duration = Duration::from_secs(2);

/// Serves one connection of TCP until it ends, or until `stop`.
pub(super) async fn serve(app: Arc<AppState>, socket: TcpStream, stop: impl Future<Output = ()>) {
    let Ok(from) = socket.peer_addr() else { return };
    // Small answers wait for nobody.
    let _ = socket.set_nodelay(true);
    speak(app, (socket, Whence::Address(from.ip())), stop).await;
}

/// Answers whoever is at the other end, until it leaves or until `stop`.
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
        // Nobody comes after one who leaves, and what follows on a stream is far away.
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

/// The answer to a request; none if the client hung up.
async fn take(
    app: &Arc<AppState>,
    whence: Whence,
    line: &mut Conn<impl Socket>,
    (head, body): (&Head, &mut Body),
) -> Option<Response<Reply>> {
    let patience = app.rules.patience;
    let wants = match line.beside(patience, pin!(enter(app, whence, head))).await? {
        Step::Answer(response) => return Some(*response),
        Step::Body(wants) => wants,
    };
    let limit = app.rules.body_limit;
    match body.collect(line, (limit, app.rules.stall)).await {
        Ok(body) => {
            let doing = pin!(wants.take(app, &head.headers, body));
            line.beside(patience, doing).await
        }
        Err(NoBody::Gone) => None,
        Err(why) => Some(unread(app, &why, limit)),
    }
}

/// The moment from which on nobody is served any more.
struct Stop<'a, S> {
    app: &'a AppState,
    stop: Pin<&'a mut S>,
    /// It knows whom to wake. From then on it is left alone until it is time: all connections share it.
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

    /// The head of the next request, if it begins before it is time.
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
