//! Client of a running gateway, for `stayput sessions`, `status`, `drain`, `stop`, `tools`, `call` and `ui`: over its Unix socket or
//! over HTTP.

pub(crate) mod call;
pub(crate) mod drain;
mod mcp;
pub(crate) mod sessions;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod take_over;
pub(crate) mod tools;
pub(crate) mod ui;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::unfold;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use stayput_http::{self as upstream, Client, ClientSettings, Target};
use tokio::runtime::Handle;

use crate::{
    app::{ServeError, instance_lock, reload::StartError},
    commands::cli::{GatewayArgs, StoreUrl, found, stdio},
    config::command_server::Definition,
    listen::unix_socket,
};

/// Maximum size of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Time that a gateway gets to open its socket, if there is none yet.
const START_TIMEOUT: Duration = Duration::from_secs(2);

/// Variable of the environment with the token for a gateway elsewhere.
const TOKEN_VARIABLE: &str = "STAYPUT_TOKEN";

/// Pause between two attempts to open a socket that does not exist yet.
const START_PAUSE: Duration = Duration::from_millis(20);

/// Longest silence of an answer that is forwarded. An event stream sends a comment more often than that.
const FORWARD_IDLE: Duration = Duration::from_secs(60);

/// Body of an answer that is forwarded.
type ForwardedBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Address of a gateway.
pub(crate) enum GatewayAddress {
    /// Unix socket in this data folder.
    Socket(PathBuf),
    /// URL, with a token.
    Url { client: Box<Client>, base: String, token: Option<String> },
}

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error(
        "no gateway runs on the store whose data folder is {}: start one with `stayput serve`, or say where \
         it is with --config, --store or --url", .0.display()
    )]
    NoGateway(PathBuf),
    #[error("the socket in {} cannot be used: {error}", data.display())]
    Socket { data: PathBuf, error: std::io::Error },
    #[error("the gateway did not answer: {0}")]
    Broken(String),
    #[error("the gateway did not answer in time")]
    Silent,
    #[error("{0}")]
    Refused(String),
    /// The path does not exist. The text lists those that do.
    #[error("{0}")]
    NoPath(String),
    #[error("the answer of the gateway is not understood: {0}")]
    Strange(String),
    #[error("{0}")]
    Wrong(String),
}

/// HTTP answer of a gateway.
pub(crate) struct GatewayResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl GatewayResponse {
    /// Returns the answer if its status is a success, else its error message.
    fn good(self) -> Result<Self, RemoteError> {
        if self.status.is_success() {
            return Ok(self);
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let text = [&body["error"], &body["error"]["message"]].into_iter().find_map(Value::as_str);
        let status = self.status;
        if let Some(known) = text.and_then(|text| text.strip_prefix("there is nothing here; ")) {
            return Err(RemoteError::NoPath(known.to_owned()));
        }
        Err(RemoteError::Refused(match text {
            Some(sentence) if status == StatusCode::UNAUTHORIZED => {
                format!("{sentence}; here: --token-file FILE, or the token in STAYPUT_TOKEN")
            }
            Some(sentence) => sentence.to_owned(),
            None => format!("the gateway answered with HTTP {status}"),
        }))
    }

    fn json(self) -> Result<Value, RemoteError> {
        let good = self.good()?;
        serde_json::from_slice(&good.body).map_err(|error| RemoteError::Strange(error.to_string()))
    }
}

type Headers<'a> = &'a [(HeaderName, HeaderValue)];

/// Reason why the address of the gateway is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatewayArgsError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    #[error(transparent)]
    Folder(#[from] ServeError),
    #[error("the token cannot be read from {}: {error}", file.display())]
    Token { file: PathBuf, error: std::io::Error },
    #[error("--url: {0}")]
    Url(#[from] stayput_http::TargetError),
    #[error("no request can be sent: {0}")]
    Client(#[from] stayput_http::ClientError),
}

impl GatewayArgs {
    /// Finds the address of the gateway.
    ///
    /// # Errors
    /// [`GatewayArgsError`] says which option to use.
    pub(crate) fn way(&self, folder: &Path) -> Result<GatewayAddress, GatewayArgsError> {
        if let Some(url) = &self.url {
            return GatewayAddress::url(url, self.token()?);
        }
        let definition = match self.config.clone().or_else(|| found(folder)) {
            Some(file) => stdio::read(&file, folder)?,
            None => Definition::new(None, Path::new("stayput.json"), folder),
        };
        let definition = match &self.store {
            Some(StoreUrl(store)) => definition.on(store),
            None => definition,
        };
        let config = definition.config()?;
        let data = self.data.as_deref().or(config.data.as_deref());
        Ok(GatewayAddress::Socket(instance_lock::data_folder(data, &config.store)?))
    }
}

impl GatewayArgs {
    /// Returns the token for a gateway elsewhere: that of `--token-file`, else that of the environment.
    fn token(&self) -> Result<Option<String>, GatewayArgsError> {
        let read = |file: &PathBuf| {
            let read = std::fs::read_to_string(file);
            read.map_err(|error| GatewayArgsError::Token { file: file.clone(), error })
        };
        let token = match &self.token_file {
            Some(file) => Some(read(file)?),
            None => std::env::var(TOKEN_VARIABLE).ok(),
        };
        Ok(token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()))
    }
}

impl GatewayAddress {
    /// Creates the address of a URL.
    pub(crate) fn url(url: &str, token: Option<String>) -> Result<Self, GatewayArgsError> {
        let base = url.trim_end_matches('/').to_owned();
        Target::parse(&base)?;
        // The client is created here, where a runtime exists. The URL was checked above.
        let client = Client::new(&ClientSettings::default())?;
        Ok(Self::Url { client: Box::new(client), base, token })
    }

    /// Waits for the socket of a gateway that was started a moment ago, such as by `stayput serve &` in the line before.
    /// Returns whether the gateway accepts connections now.
    async fn wait_for_start(&self) -> bool {
        let Self::Socket(data) = self else { return false };
        let attempts = async {
            while unix_socket::connect(data).await.is_err() {
                tokio::time::sleep(START_PAUSE).await;
            }
        };
        tokio::time::timeout(START_TIMEOUT, attempts).await.is_ok()
    }

    /// Sends a request without a body, and returns the answer as it comes.
    async fn forward(
        &self,
        (method, path): (Method, &str),
        headers: Headers<'_>,
    ) -> Result<Response<ForwardedBody>, RemoteError> {
        match self {
            Self::Socket(data) => {
                let answer = send_over_socket(data, (method, path), headers, Bytes::new()).await?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
            Self::Url { client, .. } => {
                let request = self.request((method, path), headers, Bytes::new(), FORWARD_IDLE)?;
                let broken = |error: upstream::HttpError| RemoteError::Broken(error.to_string());
                let upstream::Response { status, headers, body } =
                    client.send(request).await.map_err(broken)?;
                let parts = unfold(Some(body), async |body| {
                    let mut body = body?;
                    match body.chunk().await {
                        Ok(None) => None,
                        Ok(Some(bytes)) => Some((Ok(Frame::data(bytes)), Some(body))),
                        Err(error) => Some((Err(error.into()), None)),
                    }
                });
                let mut answer = Response::new(StreamBody::new(parts).boxed_unsync());
                *answer.status_mut() = status;
                *answer.headers_mut() = headers;
                Ok(answer)
            }
        }
    }

    /// Builds a request to a URL, with the token.
    fn request(
        &self,
        (method, path): (Method, &str),
        headers: Headers<'_>,
        body: Bytes,
        limit: Duration,
    ) -> Result<upstream::Request, RemoteError> {
        let (base, token) = match self {
            Self::Socket(_) => ("", None),
            Self::Url { base, token, .. } => (&**base, token.as_deref()),
        };
        let url = Target::parse(&format!("{base}{path}"));
        let url = url.map_err(|error| RemoteError::Wrong(error.to_string()))?;
        let mut all: HeaderMap = headers.iter().cloned().collect();
        if let Some(token) = token {
            let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
            let bearer =
                bearer.map_err(|_| RemoteError::Wrong("the token is not text".to_owned()))?;
            all.insert(header::AUTHORIZATION, bearer);
        }
        Ok(upstream::Request { method, url, headers: all, body, first_byte: limit, idle: limit })
    }

    /// Sends a request and reads the whole answer, within `limit`.
    async fn ask(
        &self,
        (method, path): (Method, &str),
        headers: Headers<'_>,
        body: Bytes,
        limit: Duration,
    ) -> Result<GatewayResponse, RemoteError> {
        let answer = async {
            match self {
                Self::Socket(data) => over_socket(data, (method, path), headers, body).await,
                Self::Url { client, .. } => {
                    let request = self.request((method, path), headers, body, limit)?;
                    over_http(client, request).await
                }
            }
        };
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(RemoteError::Silent))
    }
}

async fn over_http(
    client: &Client,
    request: upstream::Request,
) -> Result<GatewayResponse, RemoteError> {
    let broken = |error: upstream::HttpError| RemoteError::Broken(error.to_string());
    let upstream::Response { status, headers, body } =
        client.send(request).await.map_err(broken)?;
    Ok(GatewayResponse {
        status,
        headers,
        body: body.collect(MAX_ANSWER_BYTES).await.map_err(broken)?,
    })
}

async fn over_socket(
    data: &Path,
    target: (Method, &str),
    headers: Headers<'_>,
    body: Bytes,
) -> Result<GatewayResponse, RemoteError> {
    let (head, body) = send_over_socket(data, target, headers, body).await?.into_parts();
    let body = http_body_util::Limited::new(body, MAX_ANSWER_BYTES).collect().await;
    let body = body.map_err(|error| RemoteError::Broken(error.to_string()))?.to_bytes();
    Ok(GatewayResponse { status: head.status, headers: head.headers, body })
}

/// Sends a request over the Unix socket. The connection ends with the body of the answer.
async fn send_over_socket(
    data: &Path,
    (method, path): (Method, &str),
    headers: Headers<'_>,
    body: Bytes,
) -> Result<Response<Incoming>, RemoteError> {
    let stream = unix_socket::connect(data).await;
    let stream = stream.map_err(|error| match unix_socket::is_unused(&error) {
        true => RemoteError::NoGateway(data.to_owned()),
        false => RemoteError::Socket { data: data.to_owned(), error },
    })?;
    let broken = |error: hyper::Error| RemoteError::Broken(error.to_string());
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    Handle::current().spawn(connection);
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() =
        path.parse().map_err(|_| RemoteError::Wrong(format!("{path} is no path")))?;
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
    request.headers_mut().extend(headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    sender.send_request(request).await.map_err(broken)
}

impl fmt::Debug for GatewayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(data) => write!(f, "Way({})", data.display()),
            Self::Url { base, .. } => write!(f, "Way({base})"),
        }
    }
}

/// Writes to the standard output. A write error is ignored: the reader has closed the pipe.
pub(crate) fn say(text: &str) {
    let _ = write(text);
}

/// Writes a line to the standard output.
fn write(text: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{text}")?;
    output.flush()
}
