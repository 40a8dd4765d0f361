//! `stayput ui`: serves the dashboard on a loopback port, and forwards its requests to the gateway.

use std::{
    env, fs,
    io::{self, IsTerminal as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::PathBuf,
    pin::Pin,
    process::{Command, Stdio},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use stayput_core::{Clock as _, SessionId, SystemClock};
use stayput_sync::Mutex;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    signal::unix::{SignalKind, signal},
};

use super::{ForwardedBody, GatewayAddress, RemoteError, say};
use crate::{
    admin::{self, dashboard},
    auth::{Token, login, login::Logins},
    cli::UiArgs,
    listen::host_check,
    reply::Reply,
};

/// Longest time to wait for the first answer of the gateway.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Longest time for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Served page.
struct Dashboard {
    gateway: GatewayAddress,
    /// Token of the printed address, until a browser has used it.
    token: Mutex<Option<Token>>,
    logins: Logins<()>,
}

/// Serves the dashboard until Ctrl-C.
///
/// # Errors
/// [`RemoteError`] is a sentence for the user.
pub(crate) async fn run(gateway: GatewayAddress, args: &UiArgs) -> Result<(), RemoteError> {
    let failed =
        |what: &str, error: &dyn std::fmt::Display| RemoteError::Wrong(format!("{what}: {error}"));
    // An unreachable gateway or a wrong token is an error here, not on the page.
    gateway.ask((Method::GET, "/admin/status"), &[], Bytes::new(), FIRST_ANSWER).await?.good()?;
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.map_err(|error| failed("no port is free on 127.0.0.1", &error))?;
    let address = listener.local_addr().map_err(|error| failed("127.0.0.1", &error))?;
    let token =
        Token::generate().map_err(|error| failed("the system has no random numbers", &error))?;
    let url = format!("http://{address}/ui/#token={}", token.expose());
    let mut stop = signal(SignalKind::terminate()).map_err(|error| failed("SIGTERM", &error))?;
    say(&format!("the dashboard is at {url}\nthe address works once; Ctrl-C ends the page"));
    let _file = if args.no_browser { None } else { open_browser(&url) };
    let page = Dashboard { gateway, token: Mutex::new(Some(token)), logins: Logins::default() };
    tokio::select! {
        () = accept(Arc::new(page), listener) => {}
        _ = tokio::signal::ctrl_c() => {}
        _ = stop.recv() => {}
    }
    Ok(())
}

/// Opens a browser, if there is a desktop and a person. Returns the file that the browser reads.
fn open_browser(url: &str) -> Option<RedirectFile> {
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    if !io::stdout().is_terminal() || !(has_desktop || cfg!(target_os = "macos")) {
        return None;
    }
    // Failures are ignored, because the address is printed anyway.
    let file = RedirectFile::create(url).ok()?;
    let mut command = Command::new(program);
    command.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.spawn();
    Some(file)
}

/// Page in a private folder that leads to the address. The arguments of a process can be read by every user of the
/// machine, so the address with its token is not one of them. Dropping it removes the folder.
struct RedirectFile {
    folder: PathBuf,
}

impl RedirectFile {
    fn create(url: &str) -> io::Result<Self> {
        let name = format!("stayput-ui-{}", SessionId::generate(SystemClock.now()));
        let file = Self { folder: env::temp_dir().join(name) };
        fs::DirBuilder::new().mode(0o700).create(&file.folder)?;
        let mut options = fs::OpenOptions::new();
        let mut page = options.write(true).create_new(true).mode(0o600).open(file.path())?;
        writeln!(
            page,
            "<!doctype html><meta charset=utf-8><title>Stayput</title>\
             <meta http-equiv=refresh content=\"0;url={url}\"><a href=\"{url}\">Dashboard</a>"
        )?;
        Ok(file)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("open.html")
    }
}

impl Drop for RedirectFile {
    fn drop(&mut self) {
        // The token works once, so a file that stays gives no access.
        let _ = fs::remove_file(self.path());
        let _ = fs::remove_dir(&self.folder);
    }
}

async fn accept(page: Arc<Dashboard>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let page = page.clone();
                Handle::current().spawn(serve(page, socket));
            }
            // Most likely too many open files; wait until some are closed.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn serve(page: Arc<Dashboard>, socket: TcpStream) {
    let service = service_fn(move |request: Request<Incoming>| {
        let page = page.clone();
        async move { Ok::<_, std::convert::Infallible>(page.answer(request.into_parts().0).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // An error means that the browser is gone.
    let _ = server.serve_connection(TokioIo::new(socket), service).await;
}

impl Dashboard {
    async fn answer(self: Arc<Self>, head: Parts) -> Response<ForwardedBody> {
        let path = head.uri.path();
        if !is_own(&head.headers) {
            return boxed(dashboard::refusal(
                StatusCode::FORBIDDEN,
                "this address is for the page on this machine",
            ));
        }
        if let Some(file) = dashboard::file(&head.method, path) {
            return boxed(file);
        }
        if path == dashboard::LOGIN || path == dashboard::LOGOUT {
            return boxed(self.log_in_or_out(&head));
        }
        if path == "/" {
            return boxed(dashboard::redirect());
        }
        if !admin::has(path) {
            return boxed(dashboard::refusal(
                StatusCode::NOT_FOUND,
                "there is nothing here but the page",
            ));
        }
        if self.logins.find(&head.headers).is_none() {
            return boxed(dashboard::refusal(StatusCode::UNAUTHORIZED, "log in first"));
        }
        let answer = self.forward(&head).await;
        let headers = head.headers;
        answer.map(|body| LoginBody { body, page: self, headers }.boxed_unsync())
    }

    /// Exchanges the token of the printed address for a cookie, or removes the cookie.
    fn log_in_or_out(&self, head: &Parts) -> Response<Reply> {
        let page = login::page_secret(&head.headers).filter(|_| head.method == Method::POST);
        let Some(page) = page else {
            return dashboard::refusal(StatusCode::METHOD_NOT_ALLOWED, "only the page posts here");
        };
        if head.uri.path() == dashboard::LOGOUT {
            return dashboard::with_cookie(self.logins.remove(&head.headers));
        }
        let sent = head.headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
        let sent = sent.and_then(|it| it.strip_prefix("Bearer ")).unwrap_or_default();
        let mut token = self.token.lock();
        if !token.as_ref().is_some_and(|token| token.is(sent)) {
            let sentence = "this address was used already, or is not the one that `stayput ui` printed; start \
                            `stayput ui` again for a new one";
            return dashboard::refusal(StatusCode::UNAUTHORIZED, sentence);
        }
        match self.logins.add((), page, None, false) {
            Ok(cookie) => {
                *token = None;
                dashboard::with_cookie(cookie)
            }
            Err(error) => dashboard::refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                &format!("the system has no random numbers: {error}"),
            ),
        }
    }

    /// Forwards a request of the page to the gateway.
    async fn forward(&self, head: &Parts) -> Response<ForwardedBody> {
        let path = head.uri.path_and_query().map_or("/", |it| it.as_str());
        let wanted = ["accept", "last-event-id"];
        let headers: Vec<_> = head
            .headers
            .iter()
            .filter(|(name, _)| wanted.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let answer = match self.gateway.forward((head.method.clone(), path), &headers).await {
            Ok(answer) => answer,
            Err(error) => {
                let sentence = error.to_string();
                return boxed(dashboard::refusal(StatusCode::BAD_GATEWAY, &sentence));
            }
        };
        if answer.status() == StatusCode::UNAUTHORIZED {
            let sentence = "the gateway refuses the token of --token-file or STAYPUT_TOKEN";
            return boxed(dashboard::refusal(StatusCode::BAD_GATEWAY, sentence));
        }
        let (mut head, body) = answer.into_parts();
        let kind = head.headers.remove(header::CONTENT_TYPE);
        head.headers = HeaderMap::new();
        if let Some(kind) = kind {
            head.headers.insert(header::CONTENT_TYPE, kind);
        }
        dashboard::protect(&mut head.headers);
        Response::from_parts(head, body)
    }
}

/// Body of a forwarded answer. It ends when the login of its request ends, so that a logout also ends event streams.
struct LoginBody {
    body: ForwardedBody,
    page: Arc<Dashboard>,
    /// Headers of the request.
    headers: HeaderMap,
}

impl Body for LoginBody {
    type Data = Bytes;
    type Error = <ForwardedBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let next = Pin::new(&mut self.body).poll_frame(cx);
        if next.is_ready() && self.page.logins.find(&self.headers).is_none() {
            return Poll::Ready(None);
        }
        next
    }
}

/// Whether a request came from the page itself: its `Host` is this machine, and its `Origin`, if it has one, is the same.
fn is_own(headers: &HeaderMap) -> bool {
    let text =
        |value: Option<&HeaderValue>| value.and_then(|it| it.to_str().ok()).map(str::to_owned);
    let host = text(headers.get(header::HOST)).unwrap_or_default();
    let origin = text(headers.get(header::ORIGIN));
    host_check::is_local(&host) && origin.is_none_or(|origin| origin == format!("http://{host}"))
}

fn boxed(response: Response<Reply>) -> Response<ForwardedBody> {
    response.map(|body| body.map_err(|never| match never {}).boxed_unsync())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_host_and_origin_are_refused() {
        let own = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            headers.extend(origin.map(|it| (header::ORIGIN, it.parse().unwrap())));
            is_own(&headers)
        };
        assert!(own("127.0.0.1:7", None) && own("127.0.0.1:7", Some("http://127.0.0.1:7")));
        for origin in ["http://127.0.0.1:8", "https://127.0.0.1:7", "null"] {
            assert!(!own("127.0.0.1:7", Some(origin)), "{origin}");
        }
        assert!(!own("evil.example:7", None));
    }
}
